//! Published interfaces that are not served, and what a client is told that asks for one.

/// Starts of their paths, and what to use in their place.
const NOT_SERVED: [(&str, &str); 7] = [
    ("/v1/live", "Live sessions are not served: use a realtime session at /v1/realtime; docs/live.md compares them"),
    (
        "/v1/realtime/translations",
        "translation sessions are not served: use a realtime session with `repartee.slice_ms` (docs/live.md)",
    ),
    ("/v1/realtime/sessions", "this beta path is not served: create ephemeral keys at /v1/realtime/client_secrets"),
    (
        "/v1/realtime/transcription_sessions",
        "this beta path is not served: create a key at /v1/realtime/client_secrets with `session.type` transcription",
    ),
    ("/v1/responses", "the Responses API is not served: use /v1/chat/completions, or a realtime session"),
    ("/v1/images", "images are not served"),
    ("/v1/embeddings", "embeddings are not served"),
];

/// Actions on a telephone call at SIP, in a build without it.
const SIP_ACTIONS: [&str; 3] = ["accept", "reject", "refer"];

/// Describes a path that has no route.
pub(super) fn describe(path: &str) -> &'static str {
    let is_below = |start: &str| path.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if let Some((_, message)) = NOT_SERVED.iter().find(|(start, _)| is_below(start)) {
        return message;
    }
    let action =
        path.strip_prefix("/v1/realtime/calls/").and_then(|rest| rest.split_once('/')).map(|(_, action)| action);
    match action {
        Some(action) if SIP_ACTIONS.contains(&action) => {
            "this program takes no calls over SIP: build it with the feature `phone` (docs/telephone.md)"
        }
        _ => "there is no such path",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_by_whole_parts() {
        for path in ["/v1/live", "/v1/live/sessions/x/fork", "/v1/realtime/translations/client_secrets"] {
            assert!(describe(path).contains("docs/live.md"), "{path}");
        }
        assert!(describe("/v1/realtime/calls/rtc_1/refer").contains("SIP"));
        for path in ["/v1/lively", "/v1/liv", "/v1/realtime/calls/rtc_1/accepted", "/v1/realtime/calls/accept", ""] {
            assert_eq!(describe(path), "there is no such path", "{path}");
        }
    }
}
