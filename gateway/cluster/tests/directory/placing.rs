//! Choices and attempts of calls, and how they fill the nodes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use repartee_cluster::{
    BEAT_EVERY, Choice, MAX_FORWARDS, NodeRecord, NodeTag, Placement, PlacementStep, SILENT_AFTER, Table, TableInput,
    Target,
};

use super::support::{KEEP, Random, beat, codec, echoing, load, message, record, table, tag};

fn other(choice: Option<Choice>) -> Option<NodeTag> {
    match choice {
        Some(Choice::Other(Target { tag, .. })) => Some(tag),
        _ => None,
    }
}

/// Table of node 1 with nodes from 2 on, which have these free slots of ten.
fn with(own: u32, others: &[u32], now: Instant) -> Table {
    let mut table = table(now);
    table.handle(TableInput::Load(load(10, own)), now);
    for (number, free) in (2..).zip(others) {
        let mut record = record(number);
        record.load = load(10, *free);
        table.handle(TableInput::Message(&beat(1, record)), now);
    }
    table
}

#[test]
fn a_call_stays_below_the_median() {
    let now = Instant::now();
    assert_eq!(with(5, &[], now).choose(None, &[], 0, now), Some(Choice::Own));
    assert_eq!(with(5, &[5, 5], now).choose(None, &[], 0, now), Some(Choice::Own));
    assert_eq!(with(5, &[3, 7], now).choose(None, &[], 0, now), Some(Choice::Own));
    assert!(other(with(2, &[3, 7], now).choose(None, &[], 0, now)).is_some());
    assert!(other(with(0, &[1, 1], now).choose(None, &[], 0, now)).is_some());
    assert_eq!(with(0, &[0, 0], now).choose(None, &[], 0, now), None);
}

#[test]
fn the_freer_of_two_is_taken() {
    let now = Instant::now();
    let table = with(0, &[1, 2, 3, 4, 5, 0], now);
    let mut counts = BTreeMap::<NodeTag, u32>::new();
    let mut random = Random::new(7);
    for _ in 0..10_000 {
        *counts.entry(other(table.choose(None, &[], random.bits(), now)).unwrap()).or_default() += 1;
    }
    // Of five nodes in pairs: the fullest never, the freest in two of five.
    let shares: Vec<u32> = (2..=7).map(|number| counts.get(&tag(number)).copied().unwrap_or_default() / 100).collect();
    assert_eq!((shares[0], shares[5]), (0, 0), "{shares:?}");
    assert!(shares[1..5].is_sorted() && (35..=45).contains(&shares[4]), "{shares:?}");
}

#[test]
fn the_own_zone_comes_first() {
    let now = Instant::now();
    let mut table = with(0, &[9], now);
    let mut near = record(3);
    (near.zone, near.load) = ("a".to_owned(), load(10, 1));
    table.handle(TableInput::Message(&beat(1, near.clone())), now);
    let mut own = record(1);
    (own.zone, own.load) = ("a".to_owned(), load(10, 0));
    let mut zoned = Table::new(own, codec(), KEEP, now);
    let mut far = record(2);
    far.zone = "b".to_owned();
    for record in [near, far] {
        zoned.handle(TableInput::Message(&beat(1, record)), now);
    }
    assert_eq!(other(zoned.choose(None, &[], 0, now)), Some(tag(3)));
    assert_eq!(other(zoned.choose(None, &[tag(3)], 0, now)), Some(tag(2)), "then the others");
    assert_eq!(other(table.choose(None, &[tag(3)], 0, now)), Some(tag(2)));
}

#[test]
fn a_model_goes_to_who_serves_it() {
    let now = Instant::now();
    let mut table = with(9, &[], now);
    let mut large = record(2);
    (large.model, large.load) = ("large".to_owned(), load(10, 1));
    table.handle(TableInput::Message(&beat(1, large.clone())), now);
    assert_eq!(other(table.choose(Some("large"), &[], 0, now)), Some(tag(2)));
    for model in [None, Some("demo"), Some("gpt-realtime")] {
        assert_eq!(table.choose(model, &[], 0, now), Some(Choice::Own), "{model:?}");
    }
    // Full where it is served: no other model takes its place.
    large.load = load(10, 0);
    table.handle(TableInput::Message(&beat(2, large)), now);
    let mut placement = Placement::new(Some("large".to_owned()));
    assert_eq!(placement.next(&mut table, 0, now), PlacementStep::Full);
}

#[test]
fn models_of_others_are_told() {
    let now = Instant::now();
    let mut table = with(1, &[1], now);
    assert!(!table.has_other_models(now) && table.other_models(now).is_empty());
    for number in [3, 4] {
        let large = NodeRecord { model: "large".to_owned(), ..record(number) };
        table.handle(TableInput::Message(&beat(1, large)), now);
    }
    assert!(table.has_other_models(now));
    assert_eq!(table.other_models(now).into_iter().collect::<Vec<_>>(), ["large"]);
    let asked = |table: &Table, model| table.serving(model, now).map(|target| target.tag);
    assert_eq!(asked(&table, "large"), Some(tag(3)));
    table.handle(TableInput::Failed(tag(3)), now);
    assert_eq!(asked(&table, "large"), Some(tag(4)), "the one that answers");
    table.handle(TableInput::Failed(tag(4)), now);
    assert_eq!(asked(&table, "large"), Some(tag(3)), "better than none");
    assert_eq!([asked(&table, "demo"), asked(&table, "gpt-realtime")], [None; 2]);
}

#[test]
fn forwards_count_until_the_next_beat() {
    let now = Instant::now();
    let mut table = with(0, &[2, 1], now);
    let mut place = || match Placement::new(None).next(&mut table, 0, now) {
        PlacementStep::Forward(target) => target.tag,
        step => panic!("{step:?}"),
    };
    let mut filled = [place(), place(), place()];
    filled.sort_unstable();
    assert_eq!(filled, [tag(2), tag(2), tag(3)]);
    // All slots are on their way, and may be free again: the nodes themselves decide.
    place();
    for number in [2, 3] {
        table.handle(TableInput::Full(tag(number)), now);
    }
    assert_eq!(Placement::new(None).next(&mut table, 0, now), PlacementStep::Full);
    let mut told = record(2);
    told.load = load(10, 1);
    table.handle(TableInput::Message(&beat(2, told)), now);
    assert_eq!(other(table.choose(None, &[], 0, now)), Some(tag(2)));
}

#[test]
fn without_news_full_nodes_are_asked() {
    let start = Instant::now();
    let mut table = with(0, &[0, 0, 0], start);
    assert_eq!(table.choose(None, &[], 0, start), None, "they have just said so");
    let later = start + SILENT_AFTER + Duration::from_millis(1);
    let mut placement = Placement::new(None);
    for _ in 0..MAX_FORWARDS {
        let PlacementStep::Forward(target) = placement.next(&mut table, 0, later) else { panic!("a forward") };
        table.handle(TableInput::Full(target.tag), later);
    }
    assert_eq!(placement.next(&mut table, 0, later), PlacementStep::Full);
    // The feed is back, and with it what the nodes said last.
    let later = later + BEAT_EVERY;
    echoing(&mut table, TableInput::Tick, later);
    assert_eq!(table.choose(None, &[], 0, later), None);
}

#[test]
fn nodes_that_do_not_answer_wait() {
    let start = Instant::now();
    let second = Duration::from_secs(1);
    let mut table = with(0, &[9], start);
    let mut refused = Vec::new();
    for after in 0..60 {
        let now = start + after * second;
        // Its beats go on.
        let mut there = record(2);
        there.load = load(10, 9);
        echoing(&mut table, TableInput::Message(&beat(u64::from(after) + 2, there)), now);
        match Placement::new(None).next(&mut table, 0, now) {
            PlacementStep::Forward(target) => {
                table.handle(TableInput::Failed(target.tag), now);
                refused.push(after);
            }
            step => assert_eq!(step, PlacementStep::Full),
        }
    }
    assert_eq!(refused, [0, 2, 6, 14, 30, 46]);
    table.handle(TableInput::Answered(tag(2), true), start + 60 * second);
    assert!(other(table.choose(None, &[], 0, start + 60 * second)).is_some(), "one answer mends it");
}

#[test]
fn two_forwards_then_here_then_full() {
    let now = Instant::now();
    let mut table = with(1, &[5, 5, 5, 5], now);
    let mut placement = Placement::new(None);
    for _ in 0..MAX_FORWARDS {
        let PlacementStep::Forward(target) = placement.next(&mut table, 0, now) else { panic!("a forward") };
        table.handle(TableInput::Full(target.tag), now);
    }
    assert_eq!(placement.next(&mut table, 0, now), PlacementStep::Own);
    assert_eq!(placement.next(&mut table, 0, now), PlacementStep::Full);
    assert_eq!(placement.next(&mut table, 0, now), PlacementStep::Full);
}

#[test]
fn a_hopped_call_stays_here() {
    let now = Instant::now();
    let mut table = with(0, &[9, 9], now);
    let mut placement = Placement::hopped();
    assert_eq!(placement.next(&mut table, 0, now), PlacementStep::Own);
    assert_eq!(placement.next(&mut table, 0, now), PlacementStep::Full);
}

#[test]
fn a_draining_node_forwards_its_calls() {
    let now = Instant::now();
    let mut table = with(9, &[1], now);
    table.handle(TableInput::Drain, now);
    assert!(matches!(Placement::new(None).next(&mut table, 0, now), PlacementStep::Forward(_)));
    let mut alone = with(9, &[], now);
    alone.handle(TableInput::Drain, now);
    assert_eq!(Placement::new(None).next(&mut alone, 0, now), PlacementStep::Full);
}

/// Nodes with a number of slots, and their tables, which hear each other only when told to.
struct Cluster {
    tables: Vec<Table>,
    slots: Vec<u32>,
    used: Vec<u32>,
}

impl Cluster {
    fn new(slots: &[u32], now: Instant) -> Self {
        let table = |number: usize| Table::new(record(number as u32 + 1), codec(), KEEP, now);
        let tables = (0..slots.len()).map(table).collect();
        let mut cluster = Self { tables, slots: slots.to_vec(), used: vec![0; slots.len()] };
        cluster.hear(1, now);
        cluster
    }

    fn own(&mut self, node: usize, now: Instant) {
        let free = self.slots[node] - self.used[node];
        self.tables[node].handle(TableInput::Load(load(self.slots[node], free)), now);
    }

    fn hear(&mut self, seq: u64, now: Instant) {
        for from in 0..self.tables.len() {
            self.own(from, now);
            let bytes = message(repartee_cluster::MessageKind::Beat, seq, self.tables[from].own().clone());
            for to in (0..self.tables.len()).filter(|to| *to != from) {
                self.tables[to].handle(TableInput::Message(&bytes), now);
            }
        }
    }

    /// Takes a slot as its owner does.
    fn take(&mut self, node: usize) -> bool {
        let free = self.used[node] < self.slots[node];
        self.used[node] += u32::from(free);
        free
    }

    fn call(&mut self, at: usize, random: &mut Random, now: Instant) -> bool {
        let mut placement = Placement::new(None);
        let mut forwards = 0;
        loop {
            self.own(at, now);
            match placement.next(&mut self.tables[at], random.bits(), now) {
                PlacementStep::Own if self.take(at) => return true,
                PlacementStep::Own => {}
                PlacementStep::Full => return false,
                PlacementStep::Forward(target) => {
                    forwards += 1;
                    assert!(forwards <= MAX_FORWARDS);
                    let to = self.tables.iter().position(|table| table.own().tag == target.tag).unwrap();
                    let took = self.take(to);
                    let told = if took { TableInput::Answered(target.tag, true) } else { TableInput::Full(target.tag) };
                    self.tables[at].handle(told, now);
                    if took {
                        return true;
                    }
                }
            }
        }
    }
}

#[test]
fn a_hundred_calls_fill_ten_slots() {
    for seed in 0..200 {
        let (mut random, now) = (Random::new(seed), Instant::now());
        let mut cluster = Cluster::new(&[4, 3, 3], now);
        let admitted = (0..100).filter(|_| {
            let at = usize::try_from(random.below(3)).unwrap();
            cluster.call(at, &mut random, now)
        });
        assert_eq!(admitted.count(), 10, "seed {seed}");
        assert_eq!(cluster.used, cluster.slots);
    }
}

#[test]
fn twenty_nodes_fill_evenly() {
    for seed in 0..20 {
        let (mut random, now) = (Random::new(seed), Instant::now());
        let mut cluster = Cluster::new(&[50; 20], now);
        // All callers come to two nodes, and beats come every fifty calls.
        for call in 0..600 {
            let at = usize::try_from(random.below(2)).unwrap();
            assert!(cluster.call(at, &mut random, now), "seed {seed}: call {call}");
            if call % 50 == 49 {
                cluster.hear(2 + call / 50, now);
            }
        }
        let (least, most) = (cluster.used.iter().min().unwrap(), cluster.used.iter().max().unwrap());
        assert!(*least >= 20 && *most <= 40, "seed {seed}: {:?}", cluster.used);
    }
}
