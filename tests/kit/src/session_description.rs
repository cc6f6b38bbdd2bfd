//! Rules of an SDP answer against its offer (RFC 3264, 5761, 5888, 8829, 8839, 8841, 8842, 8843). Shares no code with the
//! gateway. Where an offer contradicts itself, an answer that fits any of its statements passes.

use std::collections::BTreeSet;

const DIRECTIONS: [&str; 4] = ["sendrecv", "sendonly", "recvonly", "inactive"];

/// One media section, or the session's part with empty fields.
#[derive(Debug, Default)]
struct Part<'a> {
    /// Fields of the line `m=`: media, port, protocol, formats.
    fields: Vec<&'a str>,
    lines: Vec<&'a str>,
}

impl<'a> Part<'a> {
    /// Values of the attribute; an empty one for a bare attribute.
    fn values(&self, name: &str) -> Vec<&'a str> {
        let text = self.lines.iter().filter_map(|line| line.strip_prefix("a=")?.strip_prefix(name));
        text.filter_map(|rest| if rest.is_empty() { Some("") } else { rest.strip_prefix(':') }).map(str::trim).collect()
    }

    fn has(&self, name: &str) -> bool {
        !self.values(name).is_empty()
    }

    fn field(&self, index: usize) -> &'a str {
        self.fields.get(index).copied().unwrap_or_default()
    }

    fn formats(&self) -> &[&'a str] {
        self.fields.get(3..).unwrap_or_default()
    }

    fn is_rejected(&self) -> bool {
        matches!(self.field(1), "0" | "00" | "000" | "0000" | "00000")
    }

    /// Directions that the part states; more than one only if it contradicts itself.
    fn directions(&self) -> Vec<&'static str> {
        DIRECTIONS.into_iter().filter(|direction| self.has(direction)).collect()
    }
}

fn parts(text: &str) -> (Part<'_>, Vec<Part<'_>>) {
    let (mut session, mut sections) = (Part::default(), Vec::<Part<'_>>::new());
    for line in text.split('\n').map(|line| line.trim_end_matches('\r')) {
        if let Some(fields) = line.strip_prefix("m=") {
            let fields = fields.split(' ').filter(|field| !field.is_empty()).collect();
            sections.push(Part { fields, lines: Vec::new() });
        } else if !line.is_empty() {
            sections.last_mut().unwrap_or(&mut session).lines.push(line);
        }
    }
    (session, sections)
}

fn groups<'a>(session: &Part<'a>) -> Vec<Vec<&'a str>> {
    let groups = session.values("group").into_iter().filter_map(|group| group.strip_prefix("BUNDLE"));
    groups.map(|members| members.split_whitespace().collect()).collect()
}

/// Returns the rules that `answer` breaks as the answer of a server with one transport to `offer`; none for a good one.
pub fn faults(offer: &str, answer: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut check = |holds: bool, fault: &str| {
        if !holds {
            faults.push(fault.to_owned());
        }
    };
    let ((offered, offers), (session, sections)) = (parts(offer), parts(answer));
    check(answer.ends_with("\r\n") && answer.split("\r\n").all(|line| !line.contains(['\n', '\r'])), "line ends");
    let heads: String =
        session.lines.iter().filter_map(|line| line.chars().next()).filter(|kind| *kind != 'a').collect();
    check(heads == "vost", "lines of the session");
    check(session.lines.iter().any(|line| line.starts_with("o=") && line.split(' ').count() == 6), "origin");
    check(!offered.has("ice-lite") || !session.has("ice-lite"), "both sides are ICE-lite");
    check(!session.has("extmap-allow-mixed") || offered.has("extmap-allow-mixed"), "extmap-allow-mixed is not offered");
    if offers.len() != sections.len() {
        check(false, &format!("{} sections, {} offered", sections.len(), offers.len()));
        return faults;
    }
    let accepted: Vec<_> = sections.iter().filter(|section| !section.is_rejected()).collect();
    let (offered_groups, own_groups) = (groups(&offered), groups(&session));
    let members = own_groups.first().cloned().unwrap_or_default();
    check(own_groups.len() <= 1 && session.values("group").len() == own_groups.len(), "groups");
    if !own_groups.is_empty() {
        let within = |group: &Vec<&str>| members.iter().all(|member| group.contains(member));
        check(!members.is_empty() && offered_groups.iter().any(within), "the group is not within an offered one");
        check(members.iter().collect::<BTreeSet<_>>().len() == members.len(), "a member is twice in the group");
    }
    let mids: Vec<_> = accepted.iter().flat_map(|section| section.values("mid")).collect();
    check(members.iter().all(|member| mids.contains(member)), "the group has a section that is not accepted");
    check(accepted.len() == 1 || mids.len() == accepted.len(), "accepted sections without mid");
    check(accepted.len() == 1 || mids.iter().all(|mid| members.contains(mid)), "accepted sections on two transports");
    check(!accepted.is_empty(), "nothing is accepted");
    let tagged = members
        .first()
        .map_or(accepted.first(), |tag| accepted.iter().find(|section| section.values("mid").first() == Some(tag)));
    let with_candidates: Vec<_> = sections.iter().filter(|section| section.has("candidate")).collect();
    check(
        with_candidates.len() == 1 && tagged.is_some_and(|tagged| std::ptr::eq(*tagged, with_candidates[0])),
        "candidates are not in the first section of the group",
    );
    // Bundled sections share it, and may leave it to one of them.
    let setups: Vec<_> = offers.iter().chain([&offered]).flat_map(|part| part.values("setup")).collect();
    for (index, (offer, section)) in offers.iter().zip(&sections).enumerate() {
        let broken = section_faults((&offered, offer), (&session, section), &setups);
        faults.extend(broken.into_iter().map(|fault| format!("section {index}: {fault}")));
    }
    let candidates: Vec<Vec<&str>> = with_candidates
        .iter()
        .flat_map(|section| section.values("candidate"))
        .map(|line| line.split(' ').collect())
        .collect();
    for section in accepted {
        let address = section.lines.iter().find_map(|line| line.strip_prefix("c=IN IP")?.split(' ').nth(1));
        let is_default = |candidate: &Vec<&str>| {
            candidate.len() >= 8 && Some(candidate[4]) == address && candidate[5] == section.field(1)
        };
        if !candidates.iter().any(is_default) {
            faults.push("the section's address is no candidate".to_owned());
        }
    }
    faults
}

fn section_faults(offered: (&Part<'_>, &Part<'_>), answered: (&Part<'_>, &Part<'_>), setups: &[&str]) -> Vec<String> {
    let ((offered, offer), (session, section)) = (offered, answered);
    let mut faults = Vec::new();
    let mut check = |holds: bool, fault: &str| {
        if !holds {
            faults.push(fault.to_owned());
        }
    };
    let is_bundled = groups(offered).iter().flatten().any(|member| offer.values("mid").contains(member));
    let is_live = !offer.is_rejected() || (offer.has("bundle-only") && is_bundled);
    check(section.field(0) == offer.field(0), "other media");
    check(section.field(2) == offer.field(2), "other protocol");
    check(section.values("mid").len() <= 1 && section.has("mid") == offer.has("mid"), "mid is added or left out");
    check(section.values("mid").iter().all(|mid| offer.values("mid").contains(mid)), "other mid");
    check(section.lines.iter().filter(|line| line.starts_with("c=")).count() == 1, "one address");
    check(!section.formats().is_empty(), "no formats");
    check(is_live || section.is_rejected(), "a disabled section is accepted");
    for name in ["bundle-only", "rtcp-mux-only", "rid", "simulcast", "crypto", "ice-lite", "group"] {
        check(!section.has(name), &format!("{name} has no place"));
    }
    if section.is_rejected() {
        check(section.formats().iter().all(|format| offer.formats().contains(format)), "a format is not offered");
        check(!section.has("candidate"), "candidates in a rejected section");
        return faults;
    }
    // Transport: the section's attributes come before the session's.
    let all = |name| [section.values(name), session.values(name)].into_iter().find(|values| !values.is_empty());
    let one = |name| all(name).filter(|values| values.len() == 1).map(|values| values[0]).unwrap_or_default();
    check((4..=256).contains(&one("ice-ufrag").len()) && (22..=256).contains(&one("ice-pwd").len()), "ICE credentials");
    check(one("fingerprint").starts_with("sha-256 ") && one("fingerprint").len() == 8 + 95, "fingerprint");
    let allowed: &[&str] = match one("setup") {
        "passive" => &["actpass", "active"],
        "active" => &["actpass", "passive"],
        _ => &[],
    };
    // Without the attribute the offerer is active.
    let is_default = one("setup") == "passive" && !offer.has("setup") && !offered.has("setup");
    check(!allowed.is_empty(), "setup is neither active nor passive");
    check(is_default || setups.iter().any(|setup| allowed.contains(setup)), "setup does not fit");
    match section.field(0) {
        "audio" => audio_faults(offered, offer, section, &mut check),
        "application" => {
            if section.field(2) == "DTLS/SCTP" {
                let map = format!("{} webrtc-datachannel", section.field(3));
                check(section.values("sctpmap").iter().any(|value| value.starts_with(&map)), "sctpmap");
            } else {
                check(section.formats() == offer.formats(), "other formats");
                let port = section.values("sctp-port");
                check(port.len() == 1 && port[0].parse::<u16>().is_ok_and(|port| port != 0), "sctp-port");
            }
            let size = section.values("max-message-size");
            check(size.len() == 1 && size[0].parse::<u64>().is_ok_and(|size| size > 0), "max-message-size");
        }
        _ => check(false, "media that the server does not serve"),
    }
    faults
}

fn audio_faults(offered: &Part<'_>, offer: &Part<'_>, section: &Part<'_>, check: &mut impl FnMut(bool, &str)) {
    let has_feedback = section.field(2).ends_with("AVPF");
    let mut names = Vec::new();
    for format in section.formats() {
        let map = |part: &Part<'_>| -> Vec<String> {
            let values = part.values("rtpmap").into_iter();
            values
                .filter_map(|value| value.strip_prefix(&format!("{format} ")).map(|map| map.trim().to_lowercase()))
                .collect()
        };
        check(offer.formats().contains(format), &format!("format {format} is not offered"));
        let (own, theirs) = (map(section), map(offer));
        check(own.len() == 1 && theirs.contains(&own[0]), &format!("rtpmap of {format}"));
        names.extend(own);
    }
    check(names.iter().any(|name| name.starts_with("opus/48000")), "Opus is missing");
    let served = ["opus/", "red/", "telephone-event/"];
    check(names.iter().all(|name| served.iter().any(|served| name.starts_with(served))), "a codec that is not served");
    for name in ["rtpmap", "fmtp", "rtcp-fb"] {
        let formats: Vec<_> = section.values(name).into_iter().filter_map(|value| value.split(' ').next()).collect();
        check(formats.iter().all(|format| section.formats().contains(format)), &format!("{name} of no format"));
        let unique: BTreeSet<_> = formats.iter().collect();
        check(name == "rtcp-fb" || unique.len() == formats.len(), &format!("{name} twice"));
    }
    for feedback in section.values("rtcp-fb") {
        let any = feedback.split_once(' ').map(|(_, kind)| format!("* {kind}")).unwrap_or_default();
        let is_offered = offer.values("rtcp-fb").iter().any(|found| *found == feedback || *found == any);
        check(has_feedback && is_offered, "feedback that is not offered");
    }
    let is_mux = offer.has("rtcp-mux") || offer.has("rtcp-mux-only");
    check(section.has("rtcp-mux") && is_mux, "rtcp-mux");
    check(!section.has("rtcp-rsize") || (has_feedback && offer.has("rtcp-rsize")), "rtcp-rsize is not offered");
    for extension in section.values("extmap") {
        let key = |value: &str| {
            value.split_once(' ').map(|(id, uri)| format!("{} {uri}", id.split('/').next().unwrap_or("")))
        };
        let found = offer.values("extmap").into_iter().any(|value| key(value) == key(extension));
        check(found, "an extension that is not offered");
    }
    let mut theirs = offer.directions();
    if theirs.is_empty() {
        theirs = offered.directions();
    }
    if theirs.is_empty() {
        theirs.push("sendrecv");
    }
    let own = section.directions();
    let fits = |theirs: &&'static str| match *theirs {
        "sendrecv" => true,
        "sendonly" => ["recvonly", "inactive"].contains(&own[0]),
        "recvonly" => ["sendonly", "inactive"].contains(&own[0]),
        _ => own[0] == "inactive",
    };
    check(own.len() == 1 && theirs.iter().any(fits), "direction");
    let sends = own.iter().any(|direction| direction.starts_with("send"));
    check(sends || !(section.has("ssrc") || section.has("msid")), "a stream that is not sent");
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFER: &str = "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=group:BUNDLE v a d\r\n\
        m=video 9 UDP/TLS/RTP/SAVPF 96\r\nc=IN IP4 0.0.0.0\r\na=mid:v\r\na=rtpmap:96 VP8/90000\r\n\
        m=audio 9 UDP/TLS/RTP/SAVPF 111 0\r\nc=IN IP4 0.0.0.0\r\na=mid:a\r\na=sendonly\r\na=rtcp-mux\r\n\
        a=rtpmap:111 opus/48000/2\r\na=setup:passive\r\n\
        m=application 0 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\na=mid:d\r\na=bundle-only\r\n";

    fn good() -> String {
        let shared = "a=setup:active\r\na=ice-ufrag:abcd\r\na=ice-pwd:abcdefghijklmnopqrstuv\r\n";
        format!(
            "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=ice-lite\r\na=group:BUNDLE a d\r\na=fingerprint:sha-256 {}\r\n\
             m=video 0 UDP/TLS/RTP/SAVPF 96\r\nc=IN IP4 0.0.0.0\r\na=mid:v\r\n\
             m=audio 7 UDP/TLS/RTP/SAVPF 111\r\nc=IN IP4 192.0.2.1\r\na=mid:a\r\na=recvonly\r\na=rtcp-mux\r\n{shared}\
             a=rtpmap:111 opus/48000/2\r\na=candidate:1 1 udp 2 192.0.2.1 7 typ host\r\n\
             m=application 7 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 192.0.2.1\r\na=mid:d\r\n{shared}\
             a=sctp-port:5000\r\na=max-message-size:1000\r\n",
            ["AB"; 32].join(":")
        )
    }

    #[test]
    fn good_answer_breaks_no_rule() {
        assert_eq!(faults(OFFER, &good()), [""; 0]);
    }

    #[test]
    fn each_broken_rule_is_named() {
        for (from, to, fault) in [
            ("a=recvonly", "a=sendrecv", "direction"),
            ("a=setup:active", "a=setup:passive", "setup does not fit"),
            ("SAVPF 111", "SAVPF 8", "format 8 is not offered"),
            ("m=video 0", "m=video 9", "media that the server does not serve"),
            ("BUNDLE a d", "BUNDLE v a d", "not accepted"),
            ("BUNDLE a d", "BUNDLE d a", "first section of the group"),
            ("BUNDLE a d", "BUNDLE a", "two transports"),
            ("a=mid:v\r\n", "", "mid is added or left out"),
            ("SAVPF 96", "SAVPF 0", "a format is not offered"),
            ("a=rtcp-mux\r\n", "", "rtcp-mux"),
            ("a=rtcp-mux\r\n", "a=rtcp-mux\r\na=rtcp-rsize\r\n", "rtcp-rsize"),
            ("a=rtcp-mux\r\n", "a=rtcp-mux\r\na=ssrc:1 cname:x\r\n", "not sent"),
            ("a=rtcp-mux\r\n", "a=rtcp-mux\r\na=rtcp-fb:111 nack\r\n", "feedback"),
            ("a=rtcp-mux\r\n", "a=rtcp-mux\r\na=extmap:1 urn:x\r\n", "extension"),
            ("192.0.2.1 7 typ", "192.0.2.1 8 typ", "no candidate"),
            ("a=ice-pwd", "a=ice-key", "ICE credentials"),
            ("opus/48000/2", "opus/48000/1", "rtpmap"),
            ("m=application 7 UDP", "m=application 7 TCP", "other protocol"),
            ("a=fingerprint:sha-256", "a=fingerprint:sha-512", "fingerprint"),
        ] {
            let broken = good().replace(from, to);
            assert_ne!(broken, good(), "{from}");
            let found = faults(OFFER, &broken);
            assert!(found.iter().any(|found| found.contains(fault)), "{from} -> {to}: {found:?}");
        }
    }
}
