//! The table, input by input.

use std::time::{Duration, Instant};

use repartee_cluster::{
    Departure, Feed, GONE_AFTER, Liveness, MAX_NODES, MessageKind, NodePhase, Owner, SILENT_AFTER, TableEffect,
    TableInput, tag_of_id, tag_of_ufrag,
};

use super::support::{beat, echoing, fresh, load, message, record, table, tag};

const MS: Duration = Duration::from_millis(1);

fn published(effects: &[TableEffect]) -> Vec<MessageKind> {
    let kind = |effect: &TableEffect| match effect {
        TableEffect::Publish(kind, _) => Some(*kind),
        _ => None,
    };
    effects.iter().filter_map(kind).collect()
}

#[test]
fn a_node_announces_itself_each_second() {
    let start = Instant::now();
    let mut table = table(start);
    assert_eq!(published(&table.handle(TableInput::Tick, start)), [MessageKind::Hello]);
    assert_eq!(table.next_tick(), start + 1_000 * MS);
    assert_eq!(published(&table.handle(TableInput::Tick, start + 999 * MS)), []);
    assert_eq!(published(&table.handle(TableInput::Tick, start + 1_000 * MS)), [MessageKind::Beat]);
    // A tick that comes late is one beat.
    assert_eq!(published(&table.handle(TableInput::Tick, start + 60_000 * MS)), [MessageKind::Beat]);
}

#[test]
fn a_drain_is_told_at_once() {
    let start = Instant::now();
    let mut table = table(start);
    echoing(&mut table, TableInput::Tick, start);
    let effects = table.handle(TableInput::Drain, start + MS);
    assert_eq!(published(&effects), [MessageKind::Beat]);
    assert!(published(&table.handle(TableInput::Drain, start + MS)).is_empty());
    assert_eq!(published(&table.handle(TableInput::Stop, start + 2 * MS)), [MessageKind::Bye]);
    assert!(published(&table.handle(TableInput::Tick, start + 9_000 * MS)).is_empty(), "nothing after the bye");
}

#[test]
fn draining_nodes_keep_their_ids() {
    let start = Instant::now();
    let mut table = table(start);
    echoing(&mut table, TableInput::Message(&beat(1, record(2))), start);
    let mut draining = record(2);
    draining.phase = NodePhase::Draining;
    table.handle(TableInput::Message(&beat(2, draining.clone())), start);
    table.handle(TableInput::Load(load(4, 0)), start);
    assert_eq!(table.choose(None, &[], 0, start), None);
    assert!(
        matches!(table.owner(tag(2), start), Owner::Other(target, Liveness::Fresh) if target.address == draining.address)
    );
    table.handle(TableInput::Message(&message(MessageKind::Bye, 3, draining)), start);
    // A bye is final.
    table.handle(TableInput::Message(&beat(4, record(2))), start);
    assert_eq!((table.owner(tag(2), start), table.counts().of_ended), (Owner::Ended(Departure::Bye), 1));
}

#[test]
fn a_full_node_tells_soon() {
    let start = Instant::now();
    let mut table = table(start);
    table.handle(TableInput::Tick, start);
    table.handle(TableInput::Load(load(4, 1)), start + MS);
    assert_eq!(table.next_tick(), start + 1_000 * MS);
    table.handle(TableInput::Load(load(4, 0)), start + MS);
    assert_eq!(table.next_tick(), start + 100 * MS);
    table.handle(TableInput::Tick, start + 100 * MS);
    // It changes many times in a moment: one message for all.
    for free in [1, 0, 1, 0, 1] {
        let effects = table.handle(TableInput::Load(load(4, free)), start + 101 * MS);
        assert!(published(&effects).is_empty());
    }
    assert_eq!(table.next_tick(), start + 200 * MS);
}

#[test]
fn a_hello_is_answered_soon() {
    let start = Instant::now();
    let mut table = table(start);
    table.handle(TableInput::Tick, start);
    let hello = |number| message(MessageKind::Hello, 1, record(number));
    let effects = table.handle(TableInput::Message(&hello(2)), start + 300 * MS);
    assert_eq!(published(&effects), [MessageKind::Beat]);
    // One more is for all that come within a moment.
    for number in 3..90 {
        let effects = table.handle(TableInput::Message(&hello(number)), start + 310 * MS);
        assert!(published(&effects).is_empty());
    }
    assert_eq!(table.next_tick(), start + 400 * MS);
}

#[test]
fn silent_nodes_leave_in_two_steps() {
    let start = Instant::now();
    let mut table = table(start);
    echoing(&mut table, TableInput::Message(&beat(1, record(2))), start);
    let mut left = None;
    for step in 1..=120 {
        let now = start + step * 100 * MS;
        let effects = echoing(&mut table, TableInput::Tick, now);
        let silence = now - start;
        assert_eq!(fresh(&table, now).len(), usize::from(silence <= SILENT_AFTER), "{silence:?}");
        assert_eq!(table.choose(None, &[tag(1)], 0, now).is_some(), silence <= SILENT_AFTER, "{silence:?}");
        if effects.contains(&TableEffect::Left(tag(2), Liveness::Gone)) {
            assert!(left.replace(silence).is_none(), "told twice");
        }
        // Its ids are tried all the time.
        assert!(matches!(table.owner(tag(2), now), Owner::Other(..)));
    }
    assert_eq!(left, Some(GONE_AFTER + 100 * MS));
    let now = start + 20_000 * MS;
    let effects = echoing(&mut table, TableInput::Message(&beat(2, record(2))), now);
    assert!(effects.contains(&TableEffect::Joined(tag(2))), "it woke up: {effects:?}");
    assert_eq!(fresh(&table, now), [tag(2)]);
}

#[test]
fn nobody_ages_while_the_feed_is_stale() {
    let start = Instant::now();
    let mut table = table(start);
    echoing(&mut table, TableInput::Message(&beat(1, record(2))), start);
    // The broker is gone: nothing comes back.
    let mut feeds = Vec::new();
    for step in 1..=3_600 {
        let now = start + step * 100 * MS;
        for effect in table.handle(TableInput::Tick, now) {
            if let TableEffect::Feed(feed) = effect {
                feeds.push((feed, now - start));
            }
        }
        assert_eq!(fresh(&table, now), [tag(2)]);
        assert!(table.choose(None, &[tag(1)], 0, now).is_some());
    }
    assert_eq!(feeds, [(Feed::Stale, SILENT_AFTER + 100 * MS)]);
    // It is back; the other node's beat comes later than our own echo.
    let back = start + 361_000 * MS;
    let effects = echoing(&mut table, TableInput::Tick, back);
    assert!(effects.contains(&TableEffect::Feed(Feed::Live)), "{effects:?}");
    assert!(published(&effects).contains(&MessageKind::Hello), "the others are asked: {effects:?}");
    assert_eq!(fresh(&table, back + 2_000 * MS), [tag(2)]);
    for step in 1..=30 {
        echoing(&mut table, TableInput::Tick, back + step * 100 * MS);
    }
    assert_eq!(fresh(&table, back + 3_000 * MS), [], "it was lost meanwhile");
}

#[test]
fn a_pause_of_this_process_loses_nobody() {
    let start = Instant::now();
    let mut table = table(start);
    echoing(&mut table, TableInput::Message(&beat(1, record(2))), start);
    let waits: Vec<_> = table.handle(TableInput::Tick, start + 1_000 * MS);
    // A minute later the echo of before the pause is read first.
    let woken = start + 61_000 * MS;
    assert_eq!(fresh(&table, woken), [tag(2)]);
    for effect in waits {
        if let TableEffect::Publish(_, bytes) = effect {
            echoing(&mut table, TableInput::Message(&bytes), woken);
        }
    }
    echoing(&mut table, TableInput::Tick, woken + MS);
    assert_eq!(fresh(&table, woken + 2 * MS), [tag(2)]);
    table.handle(TableInput::Message(&beat(9, record(2))), woken + 900 * MS);
    assert_eq!(fresh(&table, woken + 3_000 * MS), [tag(2)]);
}

#[test]
fn a_clock_that_goes_back_stands_still() {
    let start = Instant::now();
    let mut table = table(start);
    for second in 0..20 {
        echoing(&mut table, TableInput::Message(&beat(second + 1, record(2))), start + Duration::from_secs(second));
    }
    let (latest, back) = (start + 19_000 * MS, start + 5_000 * MS);
    let effects = echoing(&mut table, TableInput::Tick, back);
    assert!(published(&effects).is_empty());
    assert_eq!(fresh(&table, back), [tag(2)]);
    table.handle(TableInput::Message(&beat(30, record(2))), back);
    let effects = echoing(&mut table, TableInput::Tick, latest + 1_000 * MS);
    assert_eq!(published(&effects), [MessageKind::Beat]);
    assert_eq!(fresh(&table, latest + 1_000 * MS), [tag(2)], "the message came late, whatever the clock said");
}

#[test]
fn late_and_repeated_messages_change_nothing() {
    let now = Instant::now();
    let mut table = table(now);
    let mut full = record(2);
    full.load = load(4, 0);
    table.handle(TableInput::Message(&beat(5, full.clone())), now);
    for seq in [1, 4, 5, 5] {
        table.handle(TableInput::Message(&beat(seq, record(2))), now);
    }
    assert_eq!(table.nodes(now).next().unwrap().0, &full);
    assert_eq!((table.counts().taken, table.counts().late), (1, 4));
}

#[test]
fn a_restarted_node_replaces_its_earlier_run() {
    let now = Instant::now();
    let mut table = table(now);
    table.handle(TableInput::Message(&beat(70, record(2))), now);
    let mut again = record(3);
    (again.name, again.incarnation) = ("node-2".to_owned(), record(2).incarnation + 1);
    let effects = table.handle(TableInput::Message(&beat(1, again)), now);
    let restarted = Liveness::Ended(Departure::Restarted);
    assert_eq!(effects, [TableEffect::Left(tag(2), restarted), TableEffect::Joined(tag(3))]);
    assert_eq!(table.owner(tag(2), now), Owner::Ended(Departure::Restarted));
    // A last message of the earlier run is on its way.
    table.handle(TableInput::Message(&beat(71, record(2))), now);
    assert_eq!((fresh(&table, now), table.counts().superseded), (vec![tag(3)], 1));
}

#[test]
fn a_restart_with_an_earlier_clock_heals() {
    let start = Instant::now();
    let mut table = table(start);
    echoing(&mut table, TableInput::Message(&beat(70, record(2))), start);
    let mut again = record(3);
    (again.name, again.incarnation) = ("node-2".to_owned(), 5);
    for step in 1..=30_u32 {
        let now = start + step * 100 * MS;
        echoing(&mut table, TableInput::Tick, now);
        table.handle(TableInput::Message(&beat(u64::from(step), again.clone())), now);
    }
    assert_eq!(fresh(&table, start + 3_000 * MS), [tag(3)]);
    // One of the earlier run that was on its way for seconds ends nothing for good.
    let now = start + 3_100 * MS;
    table.handle(TableInput::Message(&beat(71, record(2))), now);
    for step in 31..=70_u32 {
        let now = start + step * 100 * MS;
        echoing(&mut table, TableInput::Tick, now);
        table.handle(TableInput::Message(&beat(u64::from(step), again.clone())), now);
    }
    assert_eq!(fresh(&table, start + 7_000 * MS), [tag(3)]);
}

#[test]
fn a_taken_name_or_tag_is_told() {
    let now = Instant::now();
    let mut table = table(now);
    table.handle(TableInput::Tick, now);
    let mut double = record(2);
    double.name = record(1).name;
    let effects = table.handle(TableInput::Message(&beat(1, double.clone())), now);
    assert!(effects.contains(&TableEffect::NameTaken(tag(2))), "{effects:?}");
    (double.tag, double.incarnation) = (tag(3), 5);
    table.handle(TableInput::Message(&beat(1, double.clone())), now);
    assert_eq!(table.counts().superseded, 1, "our own earlier run");
    double.tag = tag(1);
    table.handle(TableInput::Message(&beat(1, double)), now);
    assert_eq!((table.counts().tag_taken, table.counts().echoes), (1, 0));
}

#[test]
fn the_table_is_bounded() {
    let start = Instant::now();
    let mut table = table(start);
    for number in 0..2 * MAX_NODES as u32 {
        table.handle(TableInput::Message(&beat(1, record(100 + number))), start);
    }
    assert_eq!((table.nodes(start).count(), table.counts().no_capacity), (MAX_NODES, MAX_NODES as u64));
    // Those that ended make space, the oldest first.
    table.handle(TableInput::Message(&message(MessageKind::Bye, 2, record(105))), start);
    table.handle(TableInput::Message(&beat(1, record(9_999))), start);
    assert_eq!(table.nodes(start).count(), MAX_NODES);
    assert_eq!((table.owner(tag(105), start), fresh(&table, start).contains(&tag(9_999))), (Owner::Unknown, true));
}

#[test]
fn nodes_that_left_go_after_the_longest_call() {
    let start = Instant::now();
    let mut table = table(start);
    echoing(&mut table, TableInput::Message(&beat(1, record(2))), start);
    for second in 1..=3_700_u64 {
        echoing(&mut table, TableInput::Tick, start + Duration::from_secs(second));
        let kept = !matches!(table.owner(tag(2), start + Duration::from_secs(second)), Owner::Unknown);
        assert_eq!(kept, second <= 3_600, "{second}");
    }
}

#[test]
fn ids_name_their_owner_or_nobody() {
    let random = "0123456789abcdef0123456789abcdef";
    assert_eq!(tag_of_id(&format!("rtc_0000002a_{random}")), Some(tag(42)));
    assert_eq!(tag_of_id(&format!("sess_0000002a_{random}")), Some(tag(42)));
    for forged in [
        String::new(),
        "rtc_".to_owned(),
        format!("rtc_0000002a_{random}0"),
        format!("rtc_0000002a_{}", &random[1..]),
        format!("rtc_0000002A_{random}"),
        format!("rtc_+000002a_{random}"),
        format!("rtc_0000002a{random}"),
        format!("rtc_10.0.0.1_{random}"),
        format!("rtc_é00002a_{random}"),
        format!("call_0000002a_{random}"),
        format!("rtc_0000002a_../../{random}"),
    ] {
        assert_eq!(tag_of_id(&forged), None, "{forged}");
    }
    assert_eq!(tag_of_ufrag("0000002aXyZ/+"), Some(tag(42)));
    assert_eq!((tag_of_ufrag("0000002"), tag_of_ufrag("zzzzzzzzabc"), tag_of_ufrag("ééééé")), (None, None, None));
    let now = Instant::now();
    assert_eq!((table(now).owner(tag(1), now), table(now).owner(tag(42), now)), (Owner::Own, Owner::Unknown));
}
