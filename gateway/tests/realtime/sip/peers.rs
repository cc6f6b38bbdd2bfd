//! Telephones of others: `sipp` and `baresip` (scripts/setup.sh phones).

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use repartee::config::{Config, SipScheme, load};
use repartee_gateway_testkit::{find, own_address, question};
use repartee_media::resample::Resampler;
use repartee_media::{pcm, sound_file, wav};
use repartee_testkit::scripted::Script;
use tokio::process::Command;
use tokio::time::timeout;

use super::calls::sideband;
use super::telephone::{listen_by, serve_with};

/// Longest run of a telephone.
const LONGEST: Duration = Duration::from_secs(60);

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Command of an installed telephone; `None`, and a line that says so, without it.
pub(super) fn telephone(name: &str) -> Option<Command> {
    let tools = root().join("target/tools/phone/usr");
    let program = tools.join("bin").join(name);
    let libraries = std::fs::read_dir(tools.join("lib")).ok().and_then(|mut folders| {
        folders
            .find_map(|folder| Some(folder.ok()?.path()).filter(|path| path.to_string_lossy().ends_with("-linux-gnu")))
    });
    let Some(libraries) = libraries.filter(|_| program.exists()) else {
        println!("SKIPPED: {name} is not installed; scripts/setup.sh phones unpacks it");
        return None;
    };
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", libraries).env("TERM", "dumb").kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(command)
}

pub(super) async fn run(mut command: Command) -> Output {
    timeout(LONGEST, command.output()).await.expect("the telephone ends in time").unwrap()
}

/// Scenario of a call that asks a question, holds the call, resumes it and hangs up.
fn scenario(folder: &Path) -> String {
    let description = |direction: &str| {
        format!(
            "Content-Type: application/sdp\nContent-Length: [len]\n\nv=0\no=user 1 1 IN IP4 [local_ip]\ns=-\n\
             c=IN IP4 [media_ip]\nt=0 0\nm=audio [media_port] RTP/AVP 0\na=rtpmap:0 PCMU/8000\n{direction}\n"
        )
    };
    let request = |method: &str, number: u32, rest: &str| {
        let branch = "Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]";
        let to = if number == 1 && method == "INVITE" {
            "To: <sip:voice@[remote_ip]:[remote_port]>"
        } else {
            "To: <sip:voice@[remote_ip]:[remote_port]>[peer_tag_param]"
        };
        format!(
            "<send{}><![CDATA[\n{method} sip:voice@[remote_ip]:[remote_port] SIP/2.0\n{branch}\n\
             From: <sip:sipp@[local_ip]:[local_port]>;tag=[call_number]\n{to}\nCall-ID: [call_id]\nCSeq: {number} {method}\n\
             Contact: <sip:sipp@[local_ip]:[local_port]>\nMax-Forwards: 70\n{rest}\n]]></send>\n",
            if method == "ACK" { "" } else { " retrans=\"500\"" }
        )
    };
    let invite = |number: u32, direction: &str| {
        let optional = "<recv response=\"100\" optional=\"true\"/>\n<recv response=\"180\" optional=\"true\"/>\n";
        let accepted = "<recv response=\"200\"/>\n";
        format!(
            "{}{optional}{accepted}{}",
            request("INVITE", number, &description(direction)),
            request("ACK", number, "Content-Length: 0\n")
        )
    };
    let sound = folder.join("question.ulaw");
    format!(
        "<?xml version=\"1.0\" encoding=\"ISO-8859-1\" ?>\n<scenario name=\"question\">\n{}\
         <nop><action><exec rtp_stream=\"{},1,0\"/></action></nop>\n<pause milliseconds=\"5000\"/>\n\
         {}<pause milliseconds=\"300\"/>\n{}<pause milliseconds=\"300\"/>\n{}<recv response=\"200\"/>\n</scenario>\n",
        invite(1, "a=sendrecv"),
        sound.display(),
        invite(2, "a=sendonly"),
        invite(3, "a=sendrecv"),
        request("BYE", 4, "Content-Length: 0\n"),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn sipp_asks_holds_and_hangs_up() {
    sipp_asks(SipScheme::Udp, "u1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sipp_asks_over_tcp() {
    sipp_asks(SipScheme::Tcp, "t1").await;
}

async fn sipp_asks(scheme: SipScheme, mode: &str) {
    let Some(mut sipp) = telephone("sipp") else { return };
    let folder = tempfile::tempdir().unwrap();
    let narrow = Resampler::new(24_000, 8_000).unwrap().convert(&question()).unwrap().to_vec();
    std::fs::write(folder.path().join("question.ulaw"), pcm::encode_mulaw(&narrow)).unwrap();
    let file = folder.path().join("question.xml");
    std::fs::write(&file, scenario(folder.path())).unwrap();
    let server = serve_with(Script { frames: 10, ..Script::default() }, |config| {
        config.sip.listen = vec![listen_by(scheme)];
    })
    .await;
    let address = server.sip.unwrap();
    sipp.current_dir(folder.path()).arg(address.to_string()).arg("-sf").arg(&file);
    sipp.args([
        "-m",
        "1",
        "-i",
        "127.0.0.1",
        "-mi",
        "127.0.0.1",
        "-nostdin",
        "-trace_err",
        "-timeout",
        "50s",
        "-t",
        mode,
    ]);
    let ran = tokio::spawn(run(sipp));
    let mut controller = sideband(&server).await;
    let events = controller.until("output_audio_buffer.stopped").await;
    assert_eq!(find(&events, "response.done")["response"]["status"], "completed");
    let output = ran.await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    server.sessions(0).await;
    let (_, metrics) = server.get("/metrics").await;
    assert!(metrics.contains("repartee_call_seconds_count{end=\"hangup\",transport=\"sip\"} 1\n"), "{metrics}");
}

/// Encodes sound at 24 kHz as a file of this rate and number of channels.
pub(super) fn wav_file(samples: &[f32], rate: u32, channels: u8) -> Vec<u8> {
    let converted = Resampler::new(24_000, rate).unwrap().convert(samples).unwrap().to_vec();
    let interleaved: Vec<f32> = converted.iter().flat_map(|sample| vec![*sample; usize::from(channels)]).collect();
    let mut file = wav::encode(&interleaved, rate).unwrap();
    // Channels, bytes of a second, bytes of a sample of all channels.
    let block = 2 * channels;
    file[22] = channels;
    file[28..32].copy_from_slice(&(rate * u32::from(block)).to_le_bytes());
    file[32] = block;
    file
}

/// Settings of the server and command of baresip as docs/telephone.md has them, with addresses of this machine and a
/// certificate in this folder.
fn documented(scheme: SipScheme, folder: &Path) -> (Config, String) {
    let section = if scheme == SipScheme::Udp { "## Calls over SIP" } else { "### TCP and TLS" };
    let page = include_str!("../../../../docs/telephone.md");
    let (_, section) = page.split_once(&format!("\n{section}\n")).unwrap();
    let line = |start: &str| section.lines().find_map(|line| line.trim_start().strip_prefix(start)).unwrap();
    let (plain, encrypted) = (own_address().to_string(), own_address().to_string());
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let here = |text: &str| {
        let addresses = [("0.0.0.0:5060", &plain), ("127.0.0.1:5060", &plain), ("0.0.0.0:5061", &encrypted)];
        let text = addresses.iter().fold(text.to_owned(), |text, (of_page, ours)| text.replace(of_page, ours));
        let text = text.replace("192.0.2.1:5061", &encrypted).replace("192.0.2.10/32", "127.0.0.1/32");
        text.replace("192.0.2.1", "127.0.0.1")
    };
    let set = line("repartee serve").split(" --set ").skip(1).map(|setting| {
        let (name, value) = setting.split_once('=').unwrap();
        let value = match name {
            "tls.certificate" => certificate.display().to_string(),
            "tls.key" => key.display().to_string(),
            _ => here(value.trim()),
        };
        (name.to_owned(), value)
    });
    let loaded = load(None, |_| None, &set.collect::<Vec<_>>()).unwrap();
    let dial = here(line("baresip -e \"").strip_suffix('"').unwrap());
    // The page names TLS; TCP is beside it.
    let dial = if scheme == SipScheme::Tcp {
        dial.replace(&encrypted, &plain).replace(";transport=tls", ";transport=tcp")
    } else {
        dial
    };
    (loaded.config, dial)
}

/// A call of baresip with these modules and this account: asks the question in sound of this form, and records what it hears.
async fn call_of_baresip(scheme: SipScheme, loaded: &[&str], account: &str, (rate, channels): (u32, u8)) {
    let Some(mut baresip) = telephone("baresip") else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut sound = question();
    // baresip hangs up where its sound ends.
    sound.extend(vec![0.0; 24_000 * 4]);
    let spoken = folder.path().join("question.wav");
    std::fs::write(&spoken, wav_file(&sound, rate, channels)).unwrap();
    let modules = root().join("target/tools/phone/usr/lib/baresip/modules").canonicalize().unwrap();
    let loaded: String = loaded.iter().map(|module| format!("module {module}\n")).collect();
    let config = format!(
        "module_path {}\n{loaded}module aufile.so\nmodule sndfile.so\nmodule account.so\nmodule_app menu.so\n\
         sip_listen 127.0.0.1:0\naudio_source aufile,{}\nsnd_path {}\nausrc_srate {rate}\n",
        modules.display(),
        spoken.display(),
        folder.path().display()
    );
    std::fs::write(folder.path().join("config"), config).unwrap();
    std::fs::write(folder.path().join("contacts"), "").unwrap();
    std::fs::write(folder.path().join("accounts"), format!("<sip:baresip@127.0.0.1>;regint=0;{account}\n")).unwrap();
    let (settings, dial) = documented(scheme, folder.path());
    let server = serve_with(Script { frames: 10, ..Script::default() }, |config| {
        (config.sip, config.tls) = (settings.sip, settings.tls);
    })
    .await;
    baresip.arg("-f").arg(folder.path()).arg("-e").arg(&dial).args(["-t", "20"]);
    let ran = tokio::spawn(run(baresip));
    let mut controller = sideband(&server).await;
    let events = controller.until("output_audio_buffer.stopped").await;
    assert_eq!(find(&events, "response.done")["response"]["status"], "completed");
    // It ends the call, and stays.
    server.sessions(0).await;
    ran.abort();
    let files = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
    let heard = files.into_iter().find(|path| path.to_string_lossy().ends_with("-dec.wav")).expect("no record");
    let heard = sound_file::read(&std::fs::read(heard).unwrap()[..], 8_000, LONGEST).unwrap();
    let loud = heard.iter().filter(|sample| sample.abs() > 0.01).count();
    assert!(loud > 3_000, "{loud} samples of an answer in {}", heard.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn baresip_hears_answers_in_a_law() {
    call_of_baresip(SipScheme::Udp, &["g711.so"], "audio_codecs=pcma", (8_000, 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn baresip_hears_answers_in_opus() {
    call_of_baresip(SipScheme::Udp, &["opus.so"], "audio_codecs=opus/48000/2", (48_000, 2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn baresip_asks_over_tcp() {
    call_of_baresip(SipScheme::Tcp, &["g711.so"], "audio_codecs=pcmu", (8_000, 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn baresip_asks_over_tls() {
    call_of_baresip(SipScheme::Tls, &["g711.so", "srtp.so"], "audio_codecs=pcma;mediaenc=srtp-mand", (8_000, 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn baresip_hears_encrypted_answers() {
    call_of_baresip(SipScheme::Udp, &["g711.so", "srtp.so"], "audio_codecs=pcmu;mediaenc=srtp-mand", (8_000, 1)).await;
}
