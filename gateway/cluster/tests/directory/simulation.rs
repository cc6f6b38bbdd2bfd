//! Tables of several nodes over a simulated broker: loss, delay, duplicates, reordering, restarts, pauses, cut links, a lost
//! broker. Each seed is another history.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::{Duration, Instant};

use repartee_cluster::{NodeTag, Table, TableEffect, TableInput};

use super::support::{KEEP, Random, codec, fresh, record};

const NODES: usize = 5;
/// Time without faults at the end, in ms: enough for the slowest of what has to heal.
const QUIET: u64 = 9_000;

/// Troubles of the network.
#[derive(Clone, Copy)]
struct Weather {
    /// Longest delay of a message, in ms.
    delay: u64,
    /// Lost messages, in percent.
    loss: u64,
    /// Messages that come twice, in percent.
    twice: u64,
    /// True if nodes are killed, restarted, paused and cut off, and the broker goes.
    faults: bool,
}

const CALM: Weather = Weather { delay: 20, loss: 0, twice: 0, faults: false };

struct SimNode {
    /// Its table, and the zero of its clock.
    run: Option<(Table, Instant)>,
    runs: u32,
    linked: bool,
    paused_until: u64,
    /// Messages that wait in its socket.
    waiting: Vec<Vec<u8>>,
    /// Time of its last trouble: death, pause or cut.
    troubled: u64,
}

/// Message on its way: time, order, receiver, its run, bytes.
type Flying = (u64, u64, usize, u32, Vec<u8>);

struct World {
    random: Random,
    weather: Weather,
    now: u64,
    nodes: Vec<SimNode>,
    broker_back: u64,
    flying: BinaryHeap<Reverse<Flying>>,
    order: u64,
    base: Instant,
    tags: BTreeMap<NodeTag, usize>,
    /// Nodes that ended in order, and when.
    said_bye: BTreeMap<NodeTag, u64>,
    published: u64,
}

impl World {
    fn new(seed: u64, weather: Weather) -> Self {
        let node = || SimNode { run: None, runs: 0, linked: true, paused_until: 0, waiting: Vec::new(), troubled: 0 };
        let mut world = Self {
            random: Random::new(seed),
            weather,
            now: 0,
            nodes: (0..NODES).map(|_| node()).collect(),
            broker_back: 0,
            flying: BinaryHeap::new(),
            order: 0,
            base: Instant::now(),
            tags: BTreeMap::new(),
            said_bye: BTreeMap::new(),
            published: 0,
        };
        (0..NODES).for_each(|index| world.start(index));
        world
    }

    /// Starts a run of a node; its clocks have nothing to do with those of the others.
    fn start(&mut self, index: usize) {
        self.nodes[index].runs += 1;
        let mut own = record((index as u32) << 16 | self.nodes[index].runs);
        own.name = format!("node-{index}");
        own.incarnation = if self.random.chance(80) { self.now + 1_000_000 } else { self.random.below(1_000_000) };
        self.tags.insert(own.tag, index);
        let zero = self.base + Duration::from_millis(self.random.below(1_000_000_000));
        let local = zero + Duration::from_millis(self.now);
        self.nodes[index].run = Some((Table::new(own, codec(), KEEP, local), zero));
        self.nodes[index].troubled = self.now;
        self.input(index, &[TableInput::Tick]);
    }

    fn input(&mut self, index: usize, inputs: &[TableInput<'_>]) {
        let now = self.now;
        let Some((table, zero)) = &mut self.nodes[index].run else { return };
        let local = *zero + Duration::from_millis(now);
        let effects: Vec<TableEffect> = inputs.iter().flat_map(|input| table.handle(*input, local)).collect();
        for effect in effects {
            if let TableEffect::Publish(_, bytes) = effect {
                self.published += 1;
                self.publish(index, &bytes);
            }
        }
    }

    fn publish(&mut self, from: usize, bytes: &[u8]) {
        if self.now < self.broker_back || !self.nodes[from].linked {
            return;
        }
        for to in 0..NODES {
            let copies = 1 + u64::from(self.random.chance(self.weather.twice));
            for _ in 0..copies {
                if self.random.chance(self.weather.loss) {
                    continue;
                }
                self.order += 1;
                let at = self.now + 1 + self.random.below(self.weather.delay);
                self.flying.push(Reverse((at, self.order, to, self.nodes[to].runs, bytes.to_vec())));
            }
        }
    }

    /// Goes on by one millisecond.
    fn step(&mut self) {
        self.now += 1;
        while self.flying.peek().is_some_and(|Reverse((at, ..))| *at <= self.now) {
            let Some(Reverse((_, _, to, run, bytes))) = self.flying.pop() else { break };
            let node = &mut self.nodes[to];
            if run == node.runs && node.linked {
                node.waiting.push(bytes);
            }
        }
        for index in 0..NODES {
            let node = &mut self.nodes[index];
            if node.run.is_none() || self.now < node.paused_until {
                continue;
            }
            for bytes in std::mem::take(&mut node.waiting) {
                self.input(index, &[TableInput::Message(&bytes)]);
            }
            let due = self.nodes[index]
                .run
                .as_ref()
                .is_some_and(|(table, zero)| *zero + Duration::from_millis(self.now) >= table.next_tick());
            if due {
                self.input(index, &[TableInput::Tick]);
            }
        }
    }

    /// Kills, restarts, pauses or cuts a node, ends it in order, or takes the broker away.
    fn trouble(&mut self) {
        let index = usize::try_from(self.random.below(NODES as u64)).unwrap_or_default();
        let length = self.random.below(6_000);
        let kind = self.random.below(7);
        self.nodes[index].troubled = self.now;
        match kind {
            0 => self.kill(index),
            1 => {
                self.kill(index);
                self.start(index);
            }
            2 => self.nodes[index].paused_until = self.now + length,
            3 => self.nodes[index].linked = false,
            4 => {
                let is_told = self.nodes[index].linked && self.now >= self.broker_back;
                if let Some((table, _)) = self.nodes[index].run.as_ref().filter(|_| is_told) {
                    self.said_bye.insert(table.own().tag, self.now);
                }
                self.input(index, &[TableInput::Drain, TableInput::Stop]);
                self.kill(index);
            }
            5 => self.broker_back = self.now + length,
            _ => self.heal(index),
        }
    }

    fn kill(&mut self, index: usize) {
        self.nodes[index].run = None;
        self.nodes[index].waiting.clear();
    }

    fn heal(&mut self, index: usize) {
        self.nodes[index].linked = true;
        self.nodes[index].paused_until = 0;
        if self.nodes[index].run.is_none() {
            self.start(index);
        }
    }

    fn fresh_of(&self, index: usize) -> Option<BTreeSet<NodeTag>> {
        let (table, zero) = self.nodes[index].run.as_ref()?;
        Some(fresh(table, *zero + Duration::from_millis(self.now)).into_iter().collect())
    }

    /// No node that said bye gets calls, from those whom its bye has reached.
    fn check(&self, seed: u64) {
        for index in 0..NODES {
            for tag in self.fresh_of(index).unwrap_or_default() {
                let surely = self.weather.delay < 100 && self.weather.loss == 0 && !self.is_untold(index);
                assert!(
                    !surely || self.said_bye.get(&tag).is_none_or(|at| self.now <= at + 100),
                    "seed {seed}: {tag} said bye"
                );
            }
        }
    }

    /// True if a message may have missed the node.
    fn is_untold(&self, index: usize) -> bool {
        let node = &self.nodes[index];
        !node.linked
            || self.now < node.paused_until
            || self.now < self.broker_back + 3_000
            || self.now < node.troubled + 3_000
    }

    fn settle(&mut self, seed: u64) {
        (0..NODES).for_each(|index| self.heal(index));
        (self.weather, self.broker_back) = (CALM, 0);
        (0..QUIET).for_each(|_| self.step());
        let all: BTreeSet<NodeTag> =
            self.nodes.iter().filter_map(|node| node.run.as_ref()).map(|(table, _)| table.own().tag).collect();
        assert_eq!(all.len(), NODES);
        for index in 0..NODES {
            let mut expected = all.clone();
            expected.retain(|tag| self.tags[tag] != index);
            assert_eq!(self.fresh_of(index), Some(expected), "seed {seed}, node {index}");
        }
    }
}

#[test]
fn every_history_heals() {
    for seed in 0..300 {
        let mut random = Random::new(seed ^ 0xabcd);
        let weather = Weather {
            delay: [10, 80, 400, 3_000][usize::try_from(random.below(4)).unwrap()],
            loss: random.below(30),
            twice: random.below(30),
            faults: true,
        };
        let mut world = World::new(seed, weather);
        for _ in 0..30_000 {
            world.step();
            if world.weather.faults && world.random.below(1_500) == 0 {
                world.trouble();
            }
            if world.now.is_multiple_of(50) {
                world.check(seed);
            }
        }
        let most = 12 * NODES as u64 * 31;
        assert!(world.published < most, "seed {seed}: {} messages", world.published);
        world.settle(seed);
    }
}

#[test]
fn a_killed_node_goes_within_three_seconds() {
    for seed in 0..100 {
        let mut world = World::new(seed, Weather { delay: 200, ..CALM });
        let killed_at = 5_000 + world.random.below(1_000);
        (0..killed_at).for_each(|_| world.step());
        let victim = usize::try_from(world.random.below(NODES as u64)).unwrap();
        let paused = world.random.chance(50);
        if paused {
            world.nodes[victim].paused_until = u64::MAX;
        } else {
            world.kill(victim);
        }
        (0..3_000).for_each(|_| world.step());
        for index in (0..NODES).filter(|index| *index != victim) {
            let left = world.fresh_of(index).unwrap();
            assert_eq!(left.len(), NODES - 2, "seed {seed}, node {index}");
        }
    }
}

#[test]
fn a_lost_broker_loses_no_node() {
    for seed in 0..100 {
        let mut world = World::new(seed, Weather { delay: 200, ..CALM });
        (0..5_000 + seed * 10).for_each(|_| world.step());
        world.broker_back = world.now + 60_000;
        for _ in 0..60_000 / 50 {
            (0..50).for_each(|_| world.step());
            for index in 0..NODES {
                assert_eq!(world.fresh_of(index).unwrap().len(), NODES - 1, "seed {seed} at {}", world.now);
            }
        }
        // Two beats later all is as before.
        (0..2_200).for_each(|_| world.step());
        for index in 0..NODES {
            let (table, zero) = world.nodes[index].run.as_ref().unwrap();
            let now = *zero + Duration::from_millis(world.now);
            assert_eq!(table.feed(now), repartee_cluster::Feed::Live, "seed {seed}");
            assert_eq!(fresh(table, now).len(), NODES - 1);
        }
    }
}

#[test]
fn a_drain_is_seen_at_once() {
    for seed in 0..50 {
        let mut world = World::new(seed, CALM);
        (0..3_000 + seed * 17).for_each(|_| world.step());
        world.input(0, &[TableInput::Drain]);
        (0..50).for_each(|_| world.step());
        for index in 1..NODES {
            let (table, _) = world.nodes[index].run.as_ref().unwrap();
            let draining =
                table.nodes(world.base).filter(|(record, _)| record.phase == repartee_cluster::NodePhase::Draining);
            assert_eq!(draining.count(), 1, "seed {seed}, node {index}");
        }
    }
}
