//! Borders between crates, and module borders that the compiler does not enforce.

use std::collections::BTreeSet;
use std::path::PathBuf;

use repartee_tests::sources::SourceFile;
use repartee_tests::tools::root;
use repartee_tests::workspace::{Workspace, all_dependencies, graph_in};

/// Allowed dependencies between crates of this workspace. Dev-dependencies are not limited.
const MAY_NEED: &[(&str, &[&str])] = &[
    (
        "repartee",
        &[
            "repartee-chat-client",
            "repartee-cluster",
            "repartee-engine",
            "repartee-engine-api",
            "repartee-media",
            "repartee-protocol",
            "repartee-realtime",
            "repartee-report",
            "repartee-sdp",
            "repartee-sip",
            "repartee-spoken",
        ],
    ),
    ("repartee-chat-client", &[]),
    ("repartee-chat-testkit", &["repartee-chat-client"]),
    ("repartee-cluster", &[]),
    ("repartee-protocol", &[]),
    ("repartee-media", &[]),
    ("repartee-realtime", &["repartee-engine-api", "repartee-media", "repartee-protocol", "repartee-spoken"]),
    ("repartee-engine-api", &["repartee-spoken"]),
    ("repartee-checkpoint", &[]),
    (
        "repartee-engine",
        &[
            "repartee-checkpoint",
            "repartee-engine-api",
            "repartee-forms",
            "repartee-kernels",
            "repartee-spoken",
            "repartee-text",
        ],
    ),
    ("repartee-forms", &[]),
    ("repartee-kernels", &[]),
    ("repartee-kernels-testkit", &["repartee-kernels"]),
    (
        "repartee-engine-testkit",
        &["repartee-engine", "repartee-engine-api", "repartee-kernels", "repartee-kernels-testkit", "repartee-spoken"],
    ),
    (
        "repartee-fuzz-targets",
        &[
            "repartee",
            "repartee-checkpoint",
            "repartee-engine",
            "repartee-engine-api",
            "repartee-media",
            "repartee-protocol",
            "repartee-realtime",
            "repartee-sdp",
            "repartee-sip",
            "repartee-testkit",
        ],
    ),
    (
        "repartee-gateway-testkit",
        &["repartee", "repartee-engine", "repartee-engine-api", "repartee-media", "repartee-testkit"],
    ),
    ("repartee-load", &["repartee-report"]),
    ("repartee-report", &[]),
    ("repartee-sdp", &[]),
    ("repartee-sip", &["repartee-sdp"]),
    ("repartee-simcuda", &[]),
    ("repartee-spoken", &[]),
    ("repartee-testkit", &["repartee-engine-api"]),
    ("repartee-text", &[]),
    ("repartee-wording", &[]),
];

/// Crate of the end-to-end tests, which may depend on all others.
const TESTS: &str = "repartee-tests";

/// Crates without I/O: none of [`RUNTIMES_AND_NETWORKS`] is among their transitive dependencies.
const WITHOUT_NETWORK: &[&str] = &[
    "repartee-checkpoint",
    "repartee-cluster",
    "repartee-engine",
    "repartee-engine-api",
    "repartee-forms",
    "repartee-kernels",
    "repartee-media",
    "repartee-protocol",
    "repartee-realtime",
    "repartee-report",
    "repartee-sdp",
    "repartee-simcuda",
    "repartee-sip",
    "repartee-text",
    "repartee-spoken",
];

const RUNTIMES_AND_NETWORKS: &[&str] =
    &["async-std", "axum", "hyper", "mio", "rtc", "rustls", "smol", "socket2", "tokio", "tungstenite", "webrtc"];

/// Modules that each module of the gateway may name. `main.rs` and `lib.rs` may name all.
const GATEWAY_MAY_NAME: &[(&str, &[&str])] = &[
    ("address_rate", &[]),
    ("admission", &["address_rate", "auth", "budget", "config"]),
    ("arguments", &["auth", "bench", "cli", "config", "metrics", "model", "thinker", "user_error"]),
    ("auth", &["address_rate", "ids"]),
    ("bench", &[]),
    ("budget", &["auth", "config", "usage"]),
    ("byte_budget", &["address_rate", "admission", "auth"]),
    ("call_command", &["arguments", "cli", "offline", "user_error"]),
    ("call", &["budget", "headroom", "long_work", "metrics", "telemetry", "turn_judge"]),
    ("check_command", &["arguments", "cli", "config", "server", "start_log", "user_error"]),
    ("cluster", &["auth", "config"]),
    ("cli", &["auth", "config", "ids", "read_text"]),
    ("config", &["auth", "telemetry"]),
    ("headroom", &[]),
    ("heap", &[]),
    ("hub", &[]),
    ("ids", &[]),
    ("long_work", &["admission"]),
    ("metrics", &["usage"]),
    ("model", &["cli", "config", "user_error"]),
    ("offline", &["arguments", "cli", "config", "metrics", "model", "published", "start_log", "user_error"]),
    ("published", &["cli", "config", "hub", "user_error"]),
    ("read_text", &[]),
    ("recording", &["config"]),
    (
        "server",
        &[
            "address_rate",
            "admission",
            "auth",
            "budget",
            "byte_budget",
            "call",
            "cli",
            "cluster",
            "config",
            "headroom",
            "ids",
            "long_work",
            "metrics",
            "read_text",
            "recording",
            "telemetry",
            "transport",
            "turn_judge",
            "usage",
            "voices",
        ],
    ),
    ("start_log", &["config", "server", "telemetry"]),
    ("telemetry", &["metrics"]),
    ("thinker", &["config", "metrics"]),
    ("transport", &["address_rate", "byte_budget", "call", "metrics", "recording", "telemetry"]),
    ("turn_judge", &[]),
    ("user_error", &[]),
    ("usage", &[]),
    ("voices", &["config", "ids"]),
];

/// Pure sources, which take time and packets as parameters.
const PURE: &[&str] = &[
    "engine/forms/src",
    "engine/spoken/src",
    "gateway/cluster/src",
    "gateway/media/src",
    "gateway/protocol/src",
    "gateway/realtime/src",
    "gateway/sdp/src",
    "gateway/sip/src",
];

/// Words that must not occur in pure sources.
const CLOCKS_AND_IO: &[&str] = &[
    "std::net",
    "std::fs",
    "std::thread",
    "std::process",
    "tokio::",
    "Instant::now",
    "SystemTime",
    "File::open",
    "File::create",
    "WavReader::open",
    "WavWriter::create",
];

/// Sources of the shipped crates.
const SHIPPED: &[&str] = &[
    "engine/api/src",
    "gateway/chat-client/src",
    "gateway/cluster/src",
    "engine/checkpoint/src",
    "engine/forms/src",
    "engine/spoken/src",
    "gateway/media/src",
    "gateway/protocol/src",
    "gateway/realtime/src",
    "gateway/sdp/src",
    "gateway/sip/src",
    "gateway/src",
    "kernels/src",
    "loadtest/src",
    "report/src",
];

/// Words that name a model family. Names that several families share are missing: `Qwen2Tokenizer`, and BigVGAN, a vocoder.
const FAMILIES: &[&str] = &[
    "qwen3",
    "Qwen3",
    "qwen2_5",
    "qwen2.5",
    "Qwen2.5",
    "Qwen25",
    "mimi",
    "Mimi",
    "LFM2",
    "Lfm2",
    "CosyVoice",
    "mimo",
    "MiMo",
    "FunAudio",
    "Fun-Audio",
    "Covo",
    "Ming",
    "Dynin",
];

fn folder(path: &str) -> PathBuf {
    root().join(path)
}

#[test]
fn crates_need_only_allowed_crates() {
    let mut wrong = Vec::new();
    for (name, found) in Workspace::load().unwrap().crates() {
        if name == TESTS {
            continue;
        }
        let Some((_, allowed)) = MAY_NEED.iter().find(|(listed, _)| *listed == name) else {
            wrong.push(format!("{name} is not in the table"));
            continue;
        };
        let others = found.dependencies.iter().filter(|needed| !allowed.contains(&needed.as_str()));
        wrong.extend(others.map(|needed| format!("{name} needs {needed}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn cores_need_no_runtime_and_no_network() {
    let mut wrong = Vec::new();
    for name in WITHOUT_NETWORK {
        let needed = all_dependencies(name).unwrap();
        assert!(needed.contains(*name), "cargo tells nothing of {name}");
        let others = RUNTIMES_AND_NETWORKS.iter().filter(|foreign| needed.contains(**foreign));
        wrong.extend(others.map(|foreign| format!("{name} needs {foreign}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn gateway_modules_name_only_allowed_modules() {
    let sources = SourceFile::all(&folder("gateway/src")).unwrap();
    let modules: BTreeSet<String> = sources.iter().map(SourceFile::module).collect();
    let mut wrong = Vec::new();
    for source in &sources {
        let module = source.module();
        if ["lib", "main"].contains(&module.as_str()) {
            continue;
        }
        let Some((_, allowed)) = GATEWAY_MAY_NAME.iter().find(|(listed, _)| *listed == module) else {
            wrong.push(format!("{module} is not in the table"));
            continue;
        };
        for named in source.modules_named() {
            if named != module && modules.contains(&named) && !allowed.contains(&named.as_str()) {
                wrong.push(format!("{} names {named}", source.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn pure_crates_have_no_clock_and_no_io() {
    let mut wrong = Vec::new();
    for path in PURE {
        let sources = SourceFile::all(&folder(path)).unwrap();
        assert!(sources.len() > 3, "{path} is read");
        wrong.extend(sources.iter().flat_map(|source| source.lines_with(CLOCKS_AND_IO)));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn shipped_crates_leave_engine_internals_alone() {
    let mut wrong = Vec::new();
    for path in SHIPPED {
        let sources = SourceFile::all(&folder(path)).unwrap();
        wrong.extend(
            sources.iter().flat_map(|source| source.lines_with(&["repartee_engine::internals", "internals::"])),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn shared_sources_name_no_family() {
    let (mut wrong, mut named) = (Vec::new(), 0);
    for path in SHIPPED.iter().chain(&["engine/src"]) {
        for source in SourceFile::all(&folder(path)).unwrap() {
            let lines = source.lines_with(FAMILIES);
            // The list of families, their internals for tests, and the names that a published form gives architectures.
            let listing = ["models/mod.rs", "internals.rs", "checkpoint/gguf/architecture.rs"];
            let lists = listing.iter().any(|file| source.path.ends_with(file));
            let of_a_family = source.path.starts_with("models") && !source.path.starts_with("models/parts");
            if *path == "engine/src" && (lists || of_a_family) {
                named += lines.len();
            } else {
                wrong.extend(lines);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(named > 20, "the families' own folders name them {named} times");
}

#[test]
fn crate_graph_matches_architecture_page() {
    let page = std::fs::read_to_string(folder("ARCHITECTURE.md")).unwrap();
    let drawn = graph_in(&page).expect("the marks of the crate graph");
    assert_eq!(drawn, Workspace::load().unwrap().graph(), "run `make graph`");
}

#[test]
fn architecture_page_names_real_files_and_items() {
    let page = std::fs::read_to_string(folder("ARCHITECTURE.md")).unwrap();
    let (mut rows, mut wrong) = (0, Vec::new());
    for line in page.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, _, files, items, _] = cells[..] else { continue };
        // A file without a folder stands in the folder of the file before it.
        let mut path = PathBuf::new();
        let sources: Vec<String> = quoted(files)
            .filter(|name| name.ends_with(".rs"))
            .map(|name| {
                let near = path.parent().unwrap_or(&path).join(name);
                let in_folder = path.ancestors().map(|above| above.join(name)).find(|path| folder_has(path));
                path = if folder_has(&near) { near } else { in_folder.unwrap_or_else(|| name.into()) };
                std::fs::read_to_string(root().join(&path)).unwrap_or_else(|_| {
                    wrong.push(name.to_owned());
                    String::new()
                })
            })
            .collect();
        if sources.is_empty() {
            continue;
        }
        rows += 1;
        let named = quoted(items).chain(quoted(files).filter(|name| !name.ends_with(".rs")));
        for item in named.flat_map(|path| path.split("::")) {
            if !sources.iter().any(|source| source.contains(item)) {
                wrong.push(format!("{item} in {files}"));
            }
        }
    }
    assert!(rows > 30, "{rows} rows of the sound's path were read");
    assert!(wrong.is_empty(), "ARCHITECTURE.md names what is not there: {wrong:#?}");
}

/// Returns the texts between pairs of backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn folder_has(path: &std::path::Path) -> bool {
    root().join(path).is_file()
}
