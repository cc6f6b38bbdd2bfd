//! Limits on offers, and work at the limits.

use repartee_sdp::{
    MAX_ATTRIBUTES, MAX_BYTES, MAX_CANDIDATES, MAX_FORMATS, MAX_LINES, MAX_SECTIONS, Offer, OfferFault,
};
use repartee_testkit::memory::{CountScope, counts};
use repartee_testkit::offer_edits::{Edit, LISTENING_AUDIO};

use super::{saved_offer, valid_answer};

/// Appends copies of what `line` writes for 0, 1, ... to the audio section.
fn repeated(count: usize, line: impl Fn(usize) -> String) -> String {
    let mut edit = Edit::of(&saved_offer("chromium"));
    let audio = edit.find("audio").unwrap();
    edit.sections[audio].extend((0..count).map(line));
    edit.text()
}

#[test]
fn each_limit_is_an_error() {
    let sections = |count: usize| {
        let mut edit = Edit::of(&saved_offer("chromium"));
        for number in edit.sections.len()..count {
            let mut section: Vec<_> = LISTENING_AUDIO.iter().map(|line| (*line).to_owned()).collect();
            section[3] = format!("a=mid:extra{number}");
            edit.sections.push(section);
        }
        edit.text()
    };
    let formats = |count: usize| {
        let formats: Vec<_> = (0..count).map(|number| (number % 128).to_string()).collect();
        let edit = Edit::of(&saved_offer("pion"));
        let audio = edit.find("audio").unwrap();
        edit.field(audio, 3, &format!("111 {}", formats[1..].join(" "))).text()
    };
    let comments = |count: usize| {
        let mut edit = Edit::of(&saved_offer("chromium"));
        let lines = edit.head.len() + edit.sections.iter().map(Vec::len).sum::<usize>();
        edit.head.extend((lines..count).map(|_| "b=X:1".to_owned()));
        edit.text()
    };
    let padded = |bytes: usize| {
        let mut offer = saved_offer("chromium");
        let pad = "p".repeat(bytes - offer.len() - "a=x:\r\n".len());
        offer.push_str(&format!("a=x:{pad}\r\n"));
        offer
    };
    let candidate = |number: usize| format!("a=candidate:{number} 1 udp 1 192.0.2.9 {number} typ host");
    let own = saved_offer("chromium").matches("a=candidate").count();
    for (good, bad, fault) in [
        (padded(MAX_BYTES), padded(MAX_BYTES + 1), OfferFault::TooMany("bytes", MAX_BYTES)),
        (comments(MAX_LINES), comments(MAX_LINES + 1), OfferFault::TooMany("lines", MAX_LINES)),
        (sections(MAX_SECTIONS), sections(MAX_SECTIONS + 1), OfferFault::TooMany("media sections", MAX_SECTIONS)),
        (formats(120), formats(MAX_FORMATS + 10), OfferFault::TooMany("formats in a section", MAX_FORMATS)),
        (
            repeated(500, |number| format!("a=x:{number}")),
            repeated(MAX_ATTRIBUTES, |number| format!("a=x:{number}")),
            OfferFault::TooMany("attributes in a section", MAX_ATTRIBUTES),
        ),
        (
            repeated(900, candidate),
            Edit::of(&repeated(MAX_CANDIDATES - 100, candidate)).text()
                + &(0..=100 - own).map(|number| candidate(number) + "\r\n").collect::<String>(),
            OfferFault::TooMany("candidates", MAX_CANDIDATES),
        ),
    ] {
        valid_answer(&good);
        assert_eq!(Offer::read(&bad).map_err(|error| error.fault), Err(fault));
    }
}

#[test]
fn largest_offers_take_linear_work() {
    let fill = |line: &dyn Fn(usize) -> String| {
        let mut offer = saved_offer("chromium");
        for number in 0.. {
            let line = line(number);
            if offer.len() + line.len() + 2 > MAX_BYTES {
                break;
            }
            offer.push_str(&line);
            offer.push_str("\r\n");
        }
        offer
    };
    let long = |text: &str| text.repeat(MAX_BYTES / text.len());
    let group = saved_offer("chromium").replacen(
        "a=group:BUNDLE 0 1",
        &format!("a=group:BUNDLE{}", &long(" 0 1")[..60_000]),
        1,
    );
    for offer in [
        fill(&|number| format!("a=rtpmap:{} x/8000", number % 128)),
        fill(&|number| format!("a=ssrc:{number} cname:x")),
        fill(&|_| format!("a=fingerprint:sha-256 {}", ["AB"; 32].join(":"))),
        fill(&|_| "a=a".to_owned()),
        fill(&|_| "m=a 9 b c".to_owned()),
        fill(&|_| format!("m=audio 9 RTP/AVP {}", ["0"; 60].join(" "))),
        group,
        format!("v=0\r\na=group:BUNDLE{}", &long(" x")[..60_000]),
        format!("v=0\r\nm=audio 9 RTP/AVP {}", &long("1 ")[..60_000]),
        long("\n"),
        long("v=0\n"),
    ] {
        let before = counts(CountScope::Thread).allocations;
        let read = Offer::read(&offer);
        let spent = counts(CountScope::Thread).allocations - before;
        assert!(spent < 2_000, "{spent} allocations for {} bytes: {read:?}", offer.len());
    }
}
