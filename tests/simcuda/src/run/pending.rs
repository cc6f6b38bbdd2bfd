//! Asynchronous copies that have not landed.

use std::collections::VecDeque;

use crate::decode::lanes::WARP;

/// Pending copies, by lane.
#[derive(Default)]
pub struct Copies {
    lanes: Vec<Lane>,
}

#[derive(Clone, Default)]
pub(super) struct Lane {
    pub(super) open: Vec<Copy>,
    pub(super) groups: VecDeque<Vec<Copy>>,
}

#[derive(Clone)]
pub(super) struct Copy {
    pub(super) to: u64,
    pub(super) bytes: Vec<u8>,
}

impl Copies {
    pub(super) fn lane(&mut self, lane: usize) -> &mut Lane {
        self.lanes.resize(WARP, Lane::default());
        &mut self.lanes[lane]
    }

    /// Closes the lane's group.
    pub fn commit(&mut self, lane: usize) {
        let lane = self.lane(lane);
        let group = std::mem::take(&mut lane.open);
        lane.groups.push_back(group);
    }
}
