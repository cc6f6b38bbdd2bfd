//! Downloads of published checkpoints from a small hub of the tests' own: torn, resumed, refused, offline.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use repartee::hub::choose::{ChooseError, choose};
use repartee::hub::{HubError, HubFile, HubName, HubSettings, fetch};
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
fn unreachable_hub_and_unknown_names_say_what_helps() {
    let (hub, cache) = (Hub::start(), tempfile::tempdir().unwrap());
    let unknown = HubName::parse("ada/unknown").unwrap();
    let refused = fetch(&hub.settings(cache.path()), &unknown, &mut |_, _| {}).unwrap_err().to_string();
    assert!(refused.contains("refuses ada/unknown (status 404)") && refused.contains("HF_TOKEN"), "{refused}");
    // A port that nobody listens on.
    let endpoint = Some(format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()));
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
