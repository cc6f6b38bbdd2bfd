//! Changed offers through the HTTP door: a valid answer, or a 400 that names a line; never an error of the server.

use std::path::Path;

use repartee_gateway_testkit::Running;
use repartee_gateway_testkit::http::send;
use repartee_testkit::fuzz::mutation;
use repartee_testkit::offer_edits::mutate;
use repartee_testkit::random::Random;
use repartee_testkit::scripted::Script;
use repartee_testkit::session_description::faults;

/// Processor time of this process for one offer, its call and our own reading, in ms: many times the usual one.
const MOST_WORK_MS: f64 = 50.0;

/// Reads all saved offers.
fn saved() -> Vec<String> {
    let mut offers = Vec::new();
    for folder in ["recorded", "rebuilt"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sdp/tests/offers").join(folder);
        let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        offers.extend(files.iter().map(|file| std::fs::read_to_string(file).unwrap()));
    }
    offers
}

/// Processor time that all threads of this process have used, in ms.
fn processor_ms() -> f64 {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    // A thread may end meanwhile.
    let times = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok());
    times.filter_map(|times| times.split(' ').next()?.parse::<f64>().ok()).sum::<f64>() / 1e6
}

/// Posts `count` changed offers, three of four with changes that clients make, the others garbled.
async fn post_offers(count: usize, seed: u64) {
    let server = Running::start_with(Script::default(), |config| config.limits.opens_per_minute = 0).await;
    let (offers, mut random) = (saved(), Random::new(seed));
    let corpus: Vec<Vec<u8>> = offers.iter().map(|offer| offer.clone().into_bytes()).collect();
    let headers = [("content-type", "application/sdp")];
    let (mut answered, mut work) = (0, Vec::new());
    for _ in 0..count {
        let offer = if random.below(4) == 0 {
            mutation(&corpus, &mut random)
        } else {
            let saved: &String = random.choose(&offers);
            mutate(saved, &mut random).into_bytes()
        };
        let before = processor_ms();
        let reply = send(server.address, "POST", "/v1/realtime/calls", &headers, &offer).await;
        work.push(processor_ms() - before);
        let text = String::from_utf8_lossy(&offer);
        match reply.status {
            201 => {
                assert_eq!(faults(&text, &reply.body), [""; 0], "{text}\n{}", reply.body);
                answered += 1;
                let hangup = format!("{}/hangup", reply.header("location").unwrap());
                assert_eq!(send(server.address, "POST", &hangup, &[], b"").await.status, 200);
                server.sessions(0).await;
            }
            400 => {
                let error = &reply.json()["error"];
                assert_eq!(error["code"], "invalid_offer", "{text}\n{error}");
                let message = error["message"].as_str().unwrap();
                let is_named = message.starts_with("line ") || std::str::from_utf8(&offer).is_err();
                assert!(is_named, "{text}\n{message}");
            }
            status => {
                assert!(status == 413 && offer.len() > 64 << 10, "{status} {}\n{text}", reply.body);
            }
        }
    }
    work.sort_by(f64::total_cmp);
    let slow = work.iter().filter(|work| **work > MOST_WORK_MS).count();
    let (middle, most) = (work[count / 2], work[count - 1]);
    println!("{count} offers, {answered} answered: {middle:.2} ms of processor time each, {most:.2} ms at most");
    assert!(answered > count / 4 && answered < count, "{answered} of {count} are answered");
    assert_eq!(slow, 0, "offers took more than {MOST_WORK_MS} ms of processor time");
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_offers_are_answered_or_refused() {
    post_offers(120, 0x5eed).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: for the long suite"]
async fn ten_thousand_offers_are_answered_or_refused() {
    post_offers(10_000, 0xfeed).await;
}
