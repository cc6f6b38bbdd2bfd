//! Use by API keys over all nodes: what a beat tells of it, and how far behind a node may be over a simulated network.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use repartee_cluster::{
    BEAT_EVERY, GONE_AFTER, KeySpent, KeyUse, MAX_KEYS, MessageKind, SILENT_AFTER, Table, TableEffect, TableInput,
};

use super::support::{KEEP, Random, beat, codec, echoing, load, message, record, table};

const MS: Duration = Duration::from_millis(1);
/// Key of the tests.
const KEY: u64 = 7;

fn calls(key: u64, calls: u32) -> KeyUse {
    KeyUse { key, calls, ..KeyUse::default() }
}

fn decoded(decode: u32) -> KeyUse {
    KeyUse { decode, ..calls(KEY, 0) }
}

/// Keys in the message that the table publishes next.
fn told(table: &mut Table, uses: &[KeyUse], now: Instant) -> Vec<KeyUse> {
    let effects = table.handle(TableInput::Keys(uses), now);
    let message = effects.iter().find_map(|effect| match effect {
        TableEffect::Publish(_, bytes) => codec().decode(bytes).ok(),
        _ => None,
    });
    message.expect("a message").record.keys
}

/// Use that a message of node 2 charges.
fn charged(table: &mut Table, seq: u64, decode: u32, now: Instant) -> Vec<KeySpent> {
    let mut record = record(2);
    record.keys = vec![decoded(decode)];
    let effects = table.handle(TableInput::Message(&beat(seq, record)), now);
    let spent = effects.into_iter().find_map(|effect| match effect {
        TableEffect::Spent(spent) => Some(spent),
        _ => None,
    });
    spent.unwrap_or_default()
}

fn tokens(decode: u32) -> Vec<KeySpent> {
    vec![KeySpent { key: KEY, prefill: 0, decode, sound_ms: 0 }]
}

#[test]
fn the_busiest_keys_are_told() {
    let start = Instant::now();
    let mut table = table(start);
    let used = |key: u64, decode| KeyUse { decode, ..calls(key, u32::try_from(key % 50).unwrap()) };
    let uses: Vec<_> = (0..200).map(|key| used(key, 10)).collect();
    table.handle(TableInput::Tick, start);
    let first = told(&mut table, &uses, start + BEAT_EVERY);
    assert_eq!(first.len(), MAX_KEYS);
    assert!(first.is_sorted_by_key(|of_key| std::cmp::Reverse(of_key.calls)) && first[0].calls == 49, "{first:?}");
    // Without calls the ones that have used most since they were told come first, then those that were left out.
    let idle: Vec<_> = (0..40).map(|key| KeyUse { decode: 10 + key, ..calls(u64::from(key), 0) }).collect();
    let later = told(&mut table, &idle, start + 2 * BEAT_EVERY);
    assert_eq!((later.len(), later[0].key, later[MAX_KEYS - 1].key), (MAX_KEYS, 39, 8));
    let rest = told(&mut table, &idle, start + 3 * BEAT_EVERY);
    assert_eq!(rest.iter().take(8).map(|of_key| of_key.key).collect::<Vec<_>>(), (0..8).rev().collect::<Vec<_>>());
    // Each is told three times, in case that a message is lost.
    let later: Vec<_> = (4..8).map(|beat| told(&mut table, &idle, start + beat * BEAT_EVERY).len()).collect();
    assert_eq!((later.iter().sum::<usize>(), later[3]), (40 * 3 - 2 * MAX_KEYS, 0), "{later:?}");
}

#[test]
fn the_version_before_tells_no_keys() {
    let now = Instant::now();
    let mut table = Table::new(record(1), codec(), KEEP, now).with_previous_beats();
    table.handle(TableInput::Voices(3), now);
    assert_eq!(told(&mut table, &[calls(KEY, 2)], now + BEAT_EVERY), []);
}

#[test]
fn calls_elsewhere_count_while_they_may_run() {
    let start = Instant::now();
    let mut table = table(start);
    for (number, running) in [(2, 3), (3, 2)] {
        let mut record = record(number);
        record.keys = vec![calls(9, 1), calls(KEY, running)];
        echoing(&mut table, TableInput::Message(&beat(1, record)), start);
    }
    assert_eq!((table.calls_elsewhere(KEY, start), table.calls_elsewhere(1, start)), (5, 0));
    assert_eq!(table.slots_elsewhere(start), 8);
    table.handle(TableInput::Message(&message(MessageKind::Bye, 2, record(3))), start);
    assert_eq!((table.calls_elsewhere(KEY, start), table.slots_elsewhere(start)), (3, 4));
    // Node 2 is silent: its calls may go on until it counts as gone.
    for step in 1..=120 {
        let now = start + step * 100 * MS;
        echoing(&mut table, TableInput::Tick, now);
        let silence = now - start;
        assert_eq!(table.calls_elsewhere(KEY, now), if silence <= GONE_AFTER { 3 } else { 0 }, "{silence:?}");
        assert_eq!(table.slots_elsewhere(now), if silence <= SILENT_AFTER { 4 } else { 0 }, "{silence:?}");
    }
}

#[test]
fn without_a_feed_nobody_else_counts() {
    let start = Instant::now();
    let mut table = table(start);
    let mut other = record(2);
    other.keys = vec![calls(KEY, 3)];
    echoing(&mut table, TableInput::Message(&beat(1, other)), start);
    assert_eq!(table.calls_elsewhere(KEY, start + 2_000 * MS), 3);
    let stale = start + 3_000 * MS;
    table.handle(TableInput::Tick, stale);
    assert_eq!((table.calls_elsewhere(KEY, stale), table.slots_elsewhere(stale)), (0, 0));
}

#[test]
fn totals_are_charged_once() {
    let now = Instant::now();
    let mut heard = table(now);
    assert_eq!(charged(&mut heard, 1, 40, now), tokens(40), "heard from its start");
    assert_eq!(charged(&mut heard, 2, 50, now), tokens(10));
    // Messages 3 to 8 are lost, and others come late.
    assert_eq!(charged(&mut heard, 9, 120, now), tokens(70));
    for seq in [2, 5, 9] {
        assert_eq!(charged(&mut heard, seq, 200, now), []);
    }
    assert_eq!(charged(&mut heard, 10, 4, now), tokens(4_u32.wrapping_sub(120)), "totals begin anew at 2^32");
    // One that had begun before may have used it long ago.
    let mut joined = table(now);
    assert_eq!(charged(&mut joined, 70, 9_000, now), []);
    assert_eq!(charged(&mut joined, 71, 9_005, now), tokens(5));
}

/// Nodes that use one key, over a network with delays and losses.
struct Network {
    random: Random,
    now: Instant,
    nodes: Vec<SimNode>,
    flying: Vec<(Instant, usize, Vec<u8>)>,
    /// Longest delay of a message.
    delay: Duration,
    /// Lost messages in percent, and those that come twice.
    troubles: (u64, u64),
}

struct SimNode {
    table: Table,
    calls: u32,
    decode: u32,
    /// Tokens that this node has charged for others.
    charged: u32,
    /// Calls and tokens of the node by time.
    history: BTreeMap<Instant, (u32, u32)>,
}

const STEP: Duration = Duration::from_millis(20);

impl Network {
    fn new(seed: u64, delay: Duration, troubles: (u64, u64)) -> Self {
        let now = Instant::now();
        let node = |number| {
            let mut own = record(number);
            own.load = load(1_000, 1_000);
            let table = Table::new(own, codec(), KEEP, now);
            SimNode { table, calls: 0, decode: 0, charged: 0, history: BTreeMap::from([(now, (0, 0))]) }
        };
        let nodes = (1..=4).map(node).collect();
        let (random, flying) = (Random::new(seed), Vec::new());
        let mut network = Self { random, now, nodes, flying, delay: 100 * MS, troubles: (0, 0) };
        // All hear each other's start.
        (0..200).for_each(|_| network.step());
        (network.delay, network.troubles) = (delay, troubles);
        network
    }

    fn step(&mut self) {
        self.now += STEP;
        let now = self.now;
        let (due, flying) = std::mem::take(&mut self.flying).into_iter().partition::<Vec<_>, _>(|(at, ..)| *at <= now);
        self.flying = flying;
        for (_, to, bytes) in due {
            self.input(to, TableInput::Message(&bytes));
        }
        for index in 0..self.nodes.len() {
            let node = &mut self.nodes[index];
            node.history.insert(now, (node.calls, node.decode));
            let present = [KeyUse { decode: node.decode, ..calls(KEY, node.calls) }];
            self.input(index, TableInput::Keys(&present));
            if now >= self.nodes[index].table.next_tick() {
                self.input(index, TableInput::Tick);
            }
        }
    }

    fn input(&mut self, index: usize, input: TableInput<'_>) {
        for effect in self.nodes[index].table.handle(input, self.now) {
            match effect {
                TableEffect::Publish(_, bytes) => self.publish(&bytes),
                TableEffect::Spent(spent) => {
                    self.nodes[index].charged += spent.iter().map(|spent| spent.decode).sum::<u32>();
                }
                _ => {}
            }
        }
    }

    fn publish(&mut self, bytes: &[u8]) {
        for to in 0..self.nodes.len() {
            let copies = if self.random.chance(self.troubles.0) {
                0
            } else {
                1 + u64::from(self.random.chance(self.troubles.1))
            };
            for _ in 0..copies {
                let delay = self.random.below(self.delay.as_millis() as u64);
                self.flying.push((self.now + Duration::from_millis(delay), to, bytes.to_vec()));
            }
        }
    }

    /// Calls and tokens of all but one node, at a time.
    fn elsewhere(&self, index: usize, at: Instant) -> (u32, u32) {
        let mut sums = (0, 0);
        for (_, node) in self.nodes.iter().enumerate().filter(|(other, _)| *other != index) {
            let (calls, decode) = node.history.range(..=at).next_back().map_or((0, 0), |(_, sums)| *sums);
            sums = (sums.0 + calls, sums.1 + decode);
        }
        sums
    }
}

#[test]
fn a_key_exceeds_by_one_beats_calls() {
    const LIMIT: u32 = 40;
    let delay = 100 * MS;
    let lag = BEAT_EVERY + delay + 2 * STEP;
    let mut most = 0;
    for seed in 0..100 {
        let mut network = Network::new(seed, delay, (0, 20));
        for _ in 0..500 {
            network.step();
            let index = usize::try_from(network.random.below(4)).unwrap();
            let elsewhere = network.nodes[index].table.calls_elsewhere(KEY, network.now);
            let (before, _) = network.elsewhere(index, network.now - lag);
            assert!(elsewhere >= before, "seed {seed}: {elsewhere} of {before} calls");
            let own = network.nodes[index].calls;
            if network.random.chance(50) && own + elsewhere < LIMIT {
                network.nodes[index].calls += 1;
            }
        }
        let all: u32 = network.nodes.iter().map(|node| node.calls).sum();
        assert!(all >= LIMIT, "seed {seed}: {all}");
        most = most.max(all);
    }
    // Half of fifty attempts a second begin one, three in four of them elsewhere.
    assert!(most <= LIMIT + 30, "{most}");
}

/// Most calls that a key gets beyond its limit of 40 when it tries one each 20 ms, anywhere, at once.
fn excess_of_a_burst(delay: Duration) -> u32 {
    const LIMIT: u32 = 40;
    let mut most = 0;
    for seed in 0..100 {
        let mut network = Network::new(seed, delay, (0, 20));
        for index in 0..4 {
            network.input(index, TableInput::KeyLimit(LIMIT));
        }
        for _ in 0..500 {
            network.step();
            let index = usize::try_from(network.random.below(4)).unwrap();
            let elsewhere = network.nodes[index].table.calls_elsewhere(KEY, network.now);
            network.nodes[index].calls += u32::from(network.nodes[index].calls + elsewhere < LIMIT);
        }
        let all: u32 = network.nodes.iter().map(|node| node.calls).sum();
        assert!(all >= LIMIT, "seed {seed}: {all}");
        most = most.max(all - LIMIT);
    }
    most
}

#[test]
fn bursts_near_a_limit_are_told_early() {
    // A tenth of a second between two messages, the way, and two steps of the simulation: a call in each 20 ms.
    for delay in [20 * MS, 100 * MS, 300 * MS] {
        let most = excess_of_a_burst(delay);
        let bound = u32::try_from((100 * MS + delay + 2 * STEP).as_millis() / STEP.as_millis()).unwrap();
        assert!(most <= bound, "{delay:?}: {most} of {bound}");
    }
}

#[test]
fn calls_far_from_a_limit_wait_for_beats() {
    let start = Instant::now();
    let mut table = table(start);
    echoing(&mut table, TableInput::Message(&beat(1, record(2))), start);
    table.handle(TableInput::KeyLimit(40), start);
    let mut early = |running, now| {
        let effects = table.handle(TableInput::Keys(&[calls(KEY, running)]), now);
        effects.iter().any(|effect| matches!(effect, TableEffect::Publish(..)))
    };
    // Nineteen here, and perhaps as many on the other node, are less than the limit.
    assert!(!early(19, start + 200 * MS));
    assert!(early(20, start + 200 * MS));
    // These are told: nine more wait, and so do calls that have ended.
    for running in [29, 3] {
        assert!(!early(running, start + 400 * MS), "{running}");
    }
    assert!(early(30, start + 400 * MS), "the other node may have ten more, too");
    table.handle(TableInput::KeyLimit(0), start + 600 * MS);
    let effects = table.handle(TableInput::Keys(&[calls(KEY, 300)]), start + 600 * MS);
    assert_eq!(effects, [], "without a limit");
}

#[test]
fn tokens_are_charged_within_a_beat() {
    let delay = 100 * MS;
    let lag = BEAT_EVERY + delay + 2 * STEP;
    for seed in 0..50 {
        let mut network = Network::new(seed, delay, (0, 20));
        for _ in 0..500 {
            network.step();
            for index in 0..4 {
                network.nodes[index].decode += u32::try_from(network.random.below(30)).unwrap();
                let charged = network.nodes[index].charged;
                let (_, before) = network.elsewhere(index, network.now - lag);
                let (_, present) = network.elsewhere(index, network.now);
                assert!((before..=present).contains(&charged), "seed {seed}: {charged} of {before} to {present}");
            }
        }
    }
}

#[test]
fn losses_and_reordering_charge_nothing_twice() {
    for seed in 0..100 {
        let mut network = Network::new(seed, 3_000 * MS, (30, 30));
        for _ in 0..1_000 {
            network.step();
            for index in 0..4 {
                network.nodes[index].decode += u32::try_from(network.random.below(30)).unwrap();
                let (_, present) = network.elsewhere(index, network.now);
                assert!(network.nodes[index].charged <= present, "seed {seed}");
            }
        }
        // A calm while, in which every key is used once more.
        (network.troubles, network.delay) = ((0, 0), 100 * MS);
        (0..4).for_each(|index| network.nodes[index].decode += 1);
        (0..200).for_each(|_| network.step());
        for index in 0..4 {
            let (_, present) = network.elsewhere(index, network.now);
            assert_eq!(network.nodes[index].charged, present, "seed {seed}");
            assert_eq!(network.nodes[index].table.nodes(network.now).count(), 3);
        }
    }
}
