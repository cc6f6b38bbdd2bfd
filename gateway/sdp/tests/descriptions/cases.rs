//! Offers in the forms that clients send, one at a time.

use repartee_sdp::{Direction, HashFunction, Offer, OfferError, OfferFault, announced_message_size};
use repartee_testkit::offer_edits::{Edit, IMAGE, LISTENING_AUDIO, MESSAGE, PCMU, REJECTED_VIDEO, TEXT, VIDEO};

use super::{answer, media, saved, saved_offer, valid_answer};

/// Edits Chromium's offer.
fn chromium() -> Edit {
    Edit::of(&saved_offer("chromium"))
}

/// Values of an attribute in the answer's section of this media.
fn values(description: &str, media: &str, name: &str) -> Vec<String> {
    let edit = Edit::of(description);
    let section = &edit.sections[edit.find(media).unwrap()];
    section.iter().filter_map(|line| line.strip_prefix("a=")?.strip_prefix(name)).map(str::to_owned).collect()
}

fn fault(offer: &str) -> OfferError {
    Offer::read(offer).unwrap_err()
}

#[test]
fn every_saved_offer_gets_a_valid_answer() {
    for (name, offer) in saved() {
        println!("{name}");
        let answer = valid_answer(&offer);
        let read = Offer::read(&offer).unwrap();
        let has_channel = offer.contains("m=application") && offer.contains("a=group:BUNDLE");
        assert_eq!(read.max_message_size().is_some(), has_channel, "{name}");
        assert!(answer.contains("a=sendrecv") || name.contains("only") || name == "libdatachannel", "{name}: {answer}");
        // The library's offer has one form: audio, then the data channel.
        let library = media(&read.library_offer());
        let expected: &[&str] =
            if read.max_message_size().is_some() { &["audio 9", "application 9"] } else { &["audio 9"] };
        assert_eq!(library, expected, "{name}");
        assert!(!read.library_offer().contains("candidate"), "{name}");
    }
}

#[test]
fn bundle_only_sections_are_served() {
    for (name, expected) in [
        ("firefox-max-bundle", ["audio 7000", "application 7000"]),
        ("firefox-max-bundle-channel-first", ["application 7000", "audio 7000"]),
        ("gstreamer-max-bundle", ["audio 7000", "application 7000"]),
    ] {
        let offer = saved_offer(name);
        assert!(offer.contains("a=bundle-only"));
        assert_eq!(media(&valid_answer(&offer)), expected);
    }
    // Outside a group there is no port to share.
    let alone = Edit::of(&saved_offer("firefox-max-bundle-channel-first")).without("a=group");
    assert_eq!(fault(&alone.text()).fault, OfferFault::NoAudio);
}

#[test]
fn sections_are_answered_in_their_order() {
    for (section, index, expected) in [
        (VIDEO, 0, ["video 0", "audio 7000", "application 7000"]),
        (VIDEO, 1, ["audio 7000", "video 0", "application 7000"]),
        (REJECTED_VIDEO, 0, ["video 0", "audio 7000", "application 7000"]),
        (TEXT, 2, ["audio 7000", "application 7000", "text 0"]),
        (IMAGE, 1, ["audio 7000", "image 0", "application 7000"]),
        (MESSAGE, 0, ["message 0", "audio 7000", "application 7000"]),
        (PCMU, 0, ["audio 0", "audio 7000", "application 7000"]),
        (PCMU, 2, ["audio 7000", "application 7000", "audio 0"]),
        (LISTENING_AUDIO, 0, ["audio 0", "audio 7000", "application 7000"]),
    ] {
        let mid = section.iter().find_map(|line| line.strip_prefix("a=mid:")).unwrap();
        for offer in [chromium().insert(index, section), chromium().insert(index, section).bundle(mid, true)] {
            assert_eq!(media(&valid_answer(&offer.text())), expected, "{section:?}");
        }
    }
    assert_eq!(media(&valid_answer(&saved_offer("chromium-two-tracks")))[..2], ["audio 7000", "audio 0"]);
    let savp = ["audio 7000", "image 0", "text 0", "message 0"];
    assert_eq!(media(&valid_answer(&saved_offer("gateway-savp"))), savp);
}

#[test]
fn rejected_sections_are_named() {
    let offer = chromium().insert(0, REJECTED_VIDEO).insert(1, PCMU).insert(2, TEXT).without("a=group").text();
    let offer = Offer::read(&offer).unwrap();
    let rejected: Vec<_> = offer.rejected().map(|(_, media, reason)| (media, reason)).collect();
    assert_eq!(
        rejected,
        [
            ("video", "the caller has disabled it"),
            ("audio", "another audio section is served"),
            ("text", "a call carries sound and events alone"),
            ("application", "it is not in one BUNDLE group with the audio"),
        ]
    );
}

#[test]
fn live_sections_give_the_credentials() {
    let ufrag = |offer: &str| Offer::read(offer).unwrap().transport.credentials.ufrag;
    let own = values(&saved_offer("chromium"), "audio", "ice-ufrag:").remove(0);
    assert_eq!(ufrag(&chromium().insert(0, REJECTED_VIDEO).text()), own, "not those of a disabled section");
    // After a restart the first section, a stopped video, still has the old ones.
    let restart = saved_offer("chromium-stopped-video-restart");
    let (old, new) = (values(&restart, "video", "ice-ufrag:"), values(&restart, "audio", "ice-ufrag:"));
    assert_ne!(old, new);
    assert_eq!([ufrag(&restart)], new[..]);
    // One section may have them for its whole group, and so may the session.
    let bare = chromium().without("a=ice-").without("a=fingerprint").without("a=setup");
    let all = ["a=ice-ufrag:onlyHere", "a=ice-pwd:0123456789abcdefghijkl"];
    let fingerprint = format!("a=fingerprint:sha-256 {}", ["0A"; 32].join(":"));
    for place in ["audio", "application", "session"] {
        let mut edit = bare.clone();
        for line in all.iter().copied().chain([&*fingerprint, "a=setup:passive"]) {
            match place {
                "session" => edit.head.push(line.to_owned()),
                media => edit = edit.with(media, line),
            }
        }
        let offer = Offer::read(&edit.text()).unwrap();
        assert_eq!((&*offer.transport.credentials.ufrag, offer.transport.is_passive), ("onlyHere", true), "{place}");
        valid_answer(&edit.text());
    }
    // The session's come before those of other sections, and a disabled section has none.
    let mut edit = bare.clone().with("application", "a=ice-ufrag:notThis").with("application", all[1]);
    edit = edit.with("application", &fingerprint);
    edit.head.push(all[0].to_owned());
    assert_eq!(ufrag(&edit.text()), "onlyHere");
    let disabled = bare.clone().insert(0, REJECTED_VIDEO).bundle("v", true).with("audio", &fingerprint);
    assert_eq!(fault(&disabled.text()).fault, OfferFault::MissingAttribute("ice-ufrag"));
    // A video that is rejected carries what its group shares.
    let mut edit = bare.insert(0, VIDEO).bundle("w", true).field(1, 1, "0").with("audio", "a=bundle-only");
    edit = edit.with("video", all[0]).with("video", all[1]).with("video", &fingerprint);
    assert_eq!(ufrag(&edit.text()), "onlyHere");
    assert_eq!(media(&valid_answer(&edit.text())), ["video 0", "audio 7000", "application 7000"]);
}

#[test]
fn strongest_fingerprints_are_taken() {
    let digest = |byte: u8, size: usize| vec![format!("{byte:02x}"); size].join(":");
    let read = |lines: &[String]| {
        let mut edit = chromium().without("a=fingerprint");
        for line in lines {
            edit = edit.with("audio", &format!("a=fingerprint:{line}"));
        }
        let offer = edit.text();
        Offer::read(&offer).map(|offer| offer.transport.fingerprints).map(|found| (found.function, found.digests))
    };
    let (sha1, sha256) = (format!("sha-1 {}", digest(1, 20)), format!("SHA-256 {}", digest(2, 32)));
    let (sha384, sha512) = (format!("sha-384 {}", digest(3, 48)), format!("sha-512 {}", digest(4, 64)));
    let other = format!("sha-512 {}", digest(0xab, 64).to_uppercase());
    let one = |function, byte, size| Ok((function, vec![vec![byte; size]]));
    assert_eq!(read(std::slice::from_ref(&sha1)), one(HashFunction::Sha1, 1, 20));
    assert_eq!(read(&[sha1.clone(), sha256.clone()]), one(HashFunction::Sha256, 2, 32));
    assert_eq!(read(&[sha384.clone(), sha256.clone(), "md2 AB:CD".into()]), one(HashFunction::Sha384, 3, 48));
    let both = vec![vec![4; 64], vec![0xab; 64]];
    assert_eq!(read(&[sha512, sha1, other, sha256]), Ok((HashFunction::Sha512, both)));
    for (bad, expected) in [
        ("md2 AB:CD", OfferFault::FingerprintHash),
        ("sha-256", OfferFault::Syntax("a=fingerprint:<hash function> <hexadecimal bytes with colons between>")),
        ("sha-256 AB", OfferFault::Syntax("a=fingerprint:<hash function> <hexadecimal bytes with colons between>")),
    ] {
        assert_eq!(read(&[bad.to_owned()]).map_err(|error| error.fault), Err(expected));
    }
    assert_eq!(read(&[]).map_err(|error| error.fault), Err(OfferFault::MissingAttribute("fingerprint")));
}

#[test]
fn setup_is_complementary() {
    for (offered, answered, library) in [
        (Some("actpass"), "passive", "active"),
        (Some("active"), "passive", "active"),
        (Some("passive"), "active", "passive"),
        (None, "passive", "active"),
    ] {
        let mut edit = chromium().without("a=setup");
        for media in ["audio", "application"] {
            edit = offered.into_iter().fold(edit, |edit, role| edit.with(media, &format!("a=setup:{role}")));
        }
        let answer = valid_answer(&edit.text());
        assert_eq!(values(&answer, "audio", "setup:"), [answered]);
        assert_eq!(values(&answer, "application", "setup:"), [answered]);
        let library_offer = Offer::read(&edit.text()).unwrap().library_offer();
        assert_eq!(values(&library_offer, "audio", "setup:"), [library]);
    }
    let error = fault(&chromium().without("a=setup").with("audio", "a=setup:holdconn").text());
    assert_eq!(error.fault, OfferFault::Syntax("a=setup:actpass, active or passive"));
}

#[test]
fn directions_are_complementary() {
    let bare = chromium().without("a=sendrecv");
    for (offered, ours) in [
        ("sendrecv", Direction::SendRecv),
        ("sendonly", Direction::RecvOnly),
        ("recvonly", Direction::SendOnly),
        ("inactive", Direction::Inactive),
    ] {
        let mut session = bare.clone();
        session.head.push(format!("a={offered}"));
        for edit in [bare.clone().with("audio", &format!("a={offered}")), session] {
            let answer = valid_answer(&edit.text());
            assert_eq!(Offer::read(&edit.text()).unwrap().direction(), ours);
            assert_eq!(values(&answer, "audio", ours.name()), [""], "{answer}");
            assert_eq!(values(&answer, "audio", "ssrc:").is_empty(), !ours.sends());
        }
    }
    assert_eq!(Offer::read(&bare.text()).unwrap().direction(), Direction::SendRecv, "sendrecv is the default");
}

#[test]
fn streams_may_be_unnamed() {
    valid_answer(&chromium().without("a=ssrc").without("a=msid").text());
    let many =
        chromium().with("audio", "a=ssrc:1000 cname:x").with("audio", "a=ssrc:none cname:x").with("audio", "a=ssrc:");
    assert!(Offer::read(&many.text()).unwrap().ssrcs().contains(&1_000));
    valid_answer(&many.with("audio", "a=rid:1 send").with("audio", "a=simulcast:send 1").text());
}

#[test]
fn payload_types_are_the_callers() {
    let formats = |offer: &str| {
        let answer = valid_answer(offer);
        media_line(&answer, "audio").split(' ').skip(3).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(formats(&saved_offer("chromium")), "63 111 110");
    assert_eq!(formats(&saved_offer("firefox")), "109 101");
    // Static types need no rtpmap, and unknown types are nobody's.
    let unmapped = chromium().without("a=rtpmap:0").without("a=rtpmap:8").without("a=rtpmap:9").text();
    assert_eq!(formats(&unmapped.replace("110 126", "110 126 99")), "63 111 110");
    let renamed = |number: &str| {
        saved_offer("pion").replace("SAVPF 111", &format!("SAVPF {number}")).replace(":111 ", &format!(":{number} "))
    };
    for number in ["96", "127", "35", "63", "13", "0"] {
        let offer = Edit::of(&renamed(number)).without(&format!("a=rtpmap:{number} PCM")).text();
        assert_eq!(formats(&offer), number);
    }
    assert_eq!(fault(&renamed("72")).fault, OfferFault::RtcpPayloadType);
    for number in ["128", "200", "255", "256", "-1", "abc"] {
        let error = fault(&renamed(number));
        assert_eq!((error.line, error.fault), (9, OfferFault::Syntax("payload types from 0 to 127")), "{number}");
    }
    let unlisted = saved_offer("pion").replace("SAVPF 111", "SAVPF");
    assert_eq!(fault(&unlisted).fault, OfferFault::NoOpus);
    for other in ["opus/16000", "multiopus/48000/6", "opus/24000/1", "opusx/48000/2"] {
        assert_eq!(fault(&saved_offer("pion").replace("opus/48000/2", other)).fault, OfferFault::NoOpus, "{other}");
    }
    for alike in ["OPUS/48000/2", "opus/48000", "opus/48000/1"] {
        let answer = valid_answer(&saved_offer("pion").replace("opus/48000/2", alike));
        assert_eq!(values(&answer, "audio", "rtpmap:111 "), [alike]);
    }
}

#[test]
fn telephone_events_are_accepted_once() {
    let keys = |offer: &str| {
        let answer = valid_answer(offer);
        let read = Offer::read(offer).unwrap().telephone_event();
        assert!(!Offer::read(offer).unwrap().library_offer().contains("telephone-event"));
        let fmtp = read.map(|payload_type| values(&answer, "audio", &format!("fmtp:{payload_type} ")));
        assert!(fmtp.is_none_or(|fmtp| fmtp == ["0-15"]), "{answer}");
        (read, answer.matches("telephone-event/").count())
    };
    assert_eq!(keys(&saved_offer("chromium")), (Some(110), 1));
    assert_eq!(keys(&chromium().without("a=rtpmap:110").text()), (Some(126), 1), "a clock of its own");
    assert_eq!(keys(&saved_offer("firefox")), (Some(101), 1));
    assert_eq!(keys(&saved_offer("firefox").replace("telephone-event/8000/1", "TELEPHONE-EVENT/8000")).0, Some(101));
    assert_eq!(keys(&saved_offer("pion")), (None, 0));
}

fn media_line(description: &str, media: &str) -> String {
    let edit = Edit::of(description);
    edit.sections[edit.find(media).unwrap()][0].clone()
}

#[test]
fn redundant_opus_comes_first() {
    let chromium = saved_offer("chromium");
    let red = |offer: &str| (valid_answer(offer), Offer::read(offer).unwrap().has_red());
    assert_eq!(values(&red(&chromium).0, "audio", "fmtp:63 "), ["111/111"]);
    for blocks in ["111/111/111/111", "111/111"] {
        assert!(red(&chromium.replace("fmtp:63 111/111", &format!("fmtp:63 {blocks}"))).1);
    }
    for (from, to) in [
        ("red/48000/2", "red/8000"),
        ("fmtp:63 111/111", "fmtp:63 9/9"),
        ("fmtp:63 111/111", "fmtp:63 111"),
        ("fmtp:63 111/111", "fmtp:63 x"),
        ("a=fmtp:63 111/111\r\n", ""),
        ("SAVPF 111 63", "SAVPF 111"),
    ] {
        let (answer, has_red) = red(&chromium.replace(from, to));
        assert!(!has_red && !answer.contains("red/48000"), "{to}");
    }
}

#[test]
fn feedback_is_answered_as_offered() {
    let nack = |edit: Edit| values(&valid_answer(&edit.text()), "audio", "rtcp-fb:");
    assert_eq!(nack(chromium()), [""; 0]);
    assert_eq!(nack(chromium().with("audio", "a=rtcp-fb:111 nack")), ["111 nack"]);
    assert_eq!(nack(chromium().with("audio", "a=rtcp-fb:* nack")), ["111 nack"]);
    assert_eq!(nack(chromium().with("audio", "a=rtcp-fb:111 nack pli")), [""; 0]);
    let rsize = |edit: Edit| values(&valid_answer(&edit.text()), "audio", "rtcp-rsize").len();
    assert_eq!((rsize(chromium()), rsize(chromium().without("a=rtcp-rsize"))), (1, 0));
    // The profiles without feedback have neither.
    let savp = chromium().with("audio", "a=rtcp-fb:111 nack").field(0, 2, "UDP/TLS/RTP/SAVP");
    assert_eq!((nack(savp.clone()).len(), rsize(savp)), (0, 0));
}

#[test]
fn protocols_are_echoed() {
    for protocol in ["UDP/TLS/RTP/SAVP", "RTP/SAVPF", "RTP/SAVP", "RTP/AVPF", "RTP/AVP", "TCP/DTLS/RTP/SAVPF"] {
        let answer = valid_answer(&chromium().field(0, 2, protocol).text());
        assert!(media_line(&answer, "audio").contains(protocol));
    }
    assert_eq!(fault(&chromium().field(0, 2, "UDP/DTLS/SCTP").text()).fault, OfferFault::AudioProtocol);
    assert_eq!(fault(&chromium().field(0, 1, "9/2").text()).fault, OfferFault::AudioProtocol);
    for protocol in ["TCP/DTLS/SCTP", "UDP/DTLS/SCTP"] {
        let answer = valid_answer(&chromium().field(1, 2, protocol).text());
        assert_eq!(media(&answer), ["audio 7000", "application 7000"]);
    }
    let draft = chromium().field(1, 2, "DTLS/SCTP").field(1, 3, "6000").without("a=sctp-port");
    let answer = valid_answer(&draft.clone().with("application", "a=sctpmap:6000 webrtc-datachannel 1024").text());
    assert_eq!(values(&answer, "application", "sctpmap:"), ["5000 webrtc-datachannel 65535"]);
    assert_eq!(media(&valid_answer(&draft.text())), ["audio 7000", "application 0"]);
}

#[test]
fn data_channels_have_limits_and_ports() {
    let size = |value: &str| {
        let edit = chromium().without("a=max-message-size").with("application", &format!("a=max-message-size:{value}"));
        Offer::read(&edit.text()).map(|offer| offer.max_message_size()).map_err(|error| error.fault)
    };
    assert_eq!(size("1000"), Ok(Some(1_000)));
    assert_eq!((size("0"), size("99999999999999999999999")), (Ok(Some(usize::MAX)), Ok(Some(usize::MAX))));
    let syntax = Err(OfferFault::Syntax("a=max-message-size:<bytes>"));
    assert_eq!((size("-5"), size("")), (syntax, syntax));
    let silent = chromium().without("a=max-message-size").without("a=sctp-port").text();
    assert_eq!(Offer::read(&silent).unwrap().max_message_size(), Some(65_536));
    assert!(Offer::read(&silent).unwrap().library_offer().contains("a=sctp-port:5000\r\n"));
    let other = chromium().without("a=sctp-port").with("application", "a=sctp-port:6000").text();
    assert!(Offer::read(&other).unwrap().library_offer().contains("a=sctp-port:6000\r\n"));
    let closed = chromium().without("a=sctp-port").with("application", "a=sctp-port:0").text();
    assert_eq!(media(&valid_answer(&closed)), ["audio 7000", "application 0"]);
    assert_eq!(announced_message_size(&valid_answer(&silent)), Ok(262_144));
}

#[test]
fn extensions_and_repetitions_are_left_out() {
    let extensions = ["a=extmap:15 urn:x:a", "a=extmap:255 urn:x:b", "a=extmap:4096 urn:x:c", "a=extmap:x"];
    let edit = extensions.iter().fold(chromium(), |edit, line| edit.with("audio", line));
    let answer = valid_answer(&edit.with("audio", "a=rtpmap:111 opus/48000/2").text());
    assert!(!answer.contains("extmap"));
}

#[test]
fn candidates_are_not_read() {
    for candidate in [
        "1 1 udp 2113937151 4d1f8f3e-6a2b-4c7e-9d1a-0b1c2d3e4f50.local 50000 typ host",
        "1 1 udp 2113937151 fe80::1%eth0 50000 typ host",
        "1 1 tcp 2113937151 10.0.0.1 9 typ host tcptype active",
        "garbage",
        "",
    ] {
        valid_answer(&chromium().without("a=candidate").with("audio", &format!("a=candidate:{candidate}")).text());
    }
    valid_answer(&chromium().without("a=candidate").text());
}

#[test]
fn candidates_are_named_for_logs() {
    let named = |offer: &str| Offer::read(offer).unwrap().candidates().to_vec();
    let bare = chromium().without("a=candidate").insert(0, REJECTED_VIDEO);
    let lines = [
        "1 1 udp 2113937151 192.0.2.7 50000 typ host generation 0",
        "2 1 tcp 1 2001:db8::7 9 typ host tcptype active",
        "garbage",
        &format!("3 1 udp 1 {} 50000 typ host", "x".repeat(200)),
    ];
    let edit = lines.iter().fold(bare.clone(), |edit, line| edit.with("audio", &format!("a=candidate:{line}")));
    let edit = edit.with("video", &format!("a=candidate:{}", lines[0]));
    assert_eq!(named(&edit.text()), ["192.0.2.7:50000 udp host", "2001:db8::7:9 tcp host"]);
    let many = (0..100).fold(bare, |edit, number| {
        edit.with("audio", &format!("a=candidate:{number} 1 udp 1 192.0.2.{number} 1 typ host"))
    });
    assert_eq!(named(&many.text()).len(), 8);
}

#[test]
fn mids_and_groups_may_be_odd() {
    for mid in ["audio-section-with-a-long-name", "a!#$%&'*+^_`{|}~.-"] {
        let offer = saved_offer("chromium")
            .replace("a=mid:0", &format!("a=mid:{mid}"))
            .replace("BUNDLE 0", &format!("BUNDLE {mid}"));
        assert_eq!(media(&valid_answer(&offer)), ["audio 7000", "application 7000"]);
    }
    valid_answer(&chromium().bundle("zz", false).text());
    let mut edit = chromium();
    edit.head.insert(5, "a=group:LS 0 1".to_owned());
    valid_answer(&edit.text());
    // Without a group there is one transport a section: the audio alone is served.
    for edit in [chromium().without("a=group"), chromium().without("a=group").without("a=mid")] {
        assert_eq!(media(&valid_answer(&edit.text())), ["audio 7000", "application 0"]);
    }
    let twice = saved_offer("chromium").replace("a=mid:1", "a=mid:0");
    assert_eq!(fault(&twice).fault, OfferFault::DuplicateMid);
}

#[test]
fn line_ends_may_differ() {
    let offer = saved_offer("chromium");
    for alike in [
        offer.replace("\r\n", "\n"),
        offer.replacen("\r\n", "\n", 7),
        offer.replacen("\r\n", "\r\r\n", 7),
        format!("{offer}\r\n\r\n"),
        offer.trim_end().to_owned(),
        offer.replace("s=-", "s="),
        offer.replace("o=- ", "o=müller "),
        offer.replace("t=0 0\r\n", "c=IN IP4 0.0.0.0\r\nt=0 0\r\n"),
    ] {
        assert_eq!(answer(&alike), answer(&offer));
    }
    let error = fault(&offer.replace("\r\n", "\r"));
    assert_eq!((error.line, error.fault), (1, OfferFault::NotSdp));
}

#[test]
fn errors_name_their_lines() {
    let line = |offer: &str, text: &str| offer.lines().position(|line| line.starts_with(text)).unwrap() + 1;
    let offer = saved_offer("chromium");
    for text in ["", "hello", "\r\nv=0", "\u{feff}v=0", "v=1\r\n", "{\"type\": \"offer\"}"] {
        assert_eq!(fault(text), OfferError { line: 1, fault: OfferFault::NotSdp }, "{text}");
    }
    for (from, to, place) in [
        ("s=-", "s=\0", "s="),
        ("a=mid:0", "a=mid:", "a=mid"),
        ("a=mid:0", "a=", "a="),
        ("a=mid:0", "mid", "mid"),
        ("a=mid:0", "z=1", "z="),
        ("a=mid:0", "a=mid:0\r\n", ""),
        ("a=setup:actpass", "a=setup:holdconn", "a=setup"),
        ("a=ice-pwd:", "a=ice-pwd:short\r\na=x:", "a=ice-pwd"),
        ("a=ice-ufrag:", &format!("a=ice-ufrag:{}\r\na=x:", "u".repeat(257)), "a=ice-ufrag"),
        ("a=ice-ufrag:", "a=ice-ufrag:a b c d\r\na=x:", "a=ice-ufrag"),
        ("t=0 0", "t=0 0\r\na=ice-lite", "a=ice-lite"),
        ("a=rtcp-mux", "a=x", "m=audio"),
        ("a=sctp-port:5000", "a=sctp-port:x", "a=sctp-port"),
    ] {
        let bad = offer.replacen(from, to, 1);
        let error = fault(&bad);
        let expected = match place {
            "" => line(&bad, "a=mid:0") + 1,
            "a=" => bad.lines().position(|line| line == "a=").unwrap() + 1,
            place => line(&bad, place),
        };
        assert_eq!(error.line, expected, "{to:?}: {error}");
    }
    let audio = line(&offer, "m=audio");
    let syntax = OfferFault::Syntax("m=<media> <port> <protocol> <formats>");
    for (port, fault_of_port) in [("70000", syntax), ("x", syntax), ("", syntax), ("0", OfferFault::NoAudio)] {
        let error = fault(&chromium().field(0, 1, port).text());
        assert_eq!(error, OfferError { line: audio, fault: fault_of_port });
    }
    let mut edit = Edit::of(&offer);
    edit.sections.remove(0);
    let last = edit.text().lines().count();
    assert_eq!(fault(&edit.text()), OfferError { line: last, fault: OfferFault::NoAudio });
}
