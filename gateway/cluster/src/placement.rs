//! Attempts of one new call: at most two other nodes, and this one. The node that gets the call takes the slot under its own
//! lock, whatever the table says.

use std::time::Instant;

use crate::choose::Choice;
use crate::peer::Target;
use crate::table::Table;
use crate::tag::NodeTag;

/// Maximum number of nodes that a call is forwarded to, one after another.
pub const MAX_FORWARDS: usize = 2;

/// Next step of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlacementStep {
    /// Take the slot here. If there is none after all, ask for the next step.
    Own,
    /// Forward the call. If it is refused as full or fails, tell the table and ask for the next step.
    Forward(Target),
    /// Refuse the call: no node has a slot.
    Full,
}

/// Attempts of one call.
#[derive(Debug, Clone)]
pub struct Placement {
    /// Model that the caller asked for.
    model: Option<String>,
    /// Nodes that were tried, this one included.
    tried: Vec<NodeTag>,
    forwards: usize,
    /// True for a call that another node has forwarded: it stays here.
    hopped: bool,
}

impl Placement {
    /// Call of a caller.
    pub fn new(model: Option<String>) -> Self {
        Self { model, tried: Vec::new(), forwards: 0, hopped: false }
    }

    /// Call that another node has forwarded: it is taken here or refused.
    pub fn hopped() -> Self {
        Self { hopped: true, ..Self::new(None) }
    }

    /// Next step. `random` are 64 random bits. Give the table this node's [load](crate::TableInput::Load) before.
    pub fn next(&mut self, table: &mut Table, random: u64, now: Instant) -> PlacementStep {
        let own = table.own().tag;
        let here = |tried: &mut Vec<NodeTag>| {
            tried.push(own);
            PlacementStep::Own
        };
        let may_be_here = !self.tried.contains(&own);
        if self.hopped {
            return if may_be_here { here(&mut self.tried) } else { PlacementStep::Full };
        }
        if self.forwards < MAX_FORWARDS {
            match table.choose(self.model.as_deref(), &self.tried, random, now) {
                Some(Choice::Own) => return here(&mut self.tried),
                Some(Choice::Other(target)) => {
                    self.forwards += 1;
                    self.tried.push(target.tag);
                    table.count_sent(target.tag);
                    return PlacementStep::Forward(target);
                }
                None => {}
            }
        }
        if may_be_here && table.serves_here(self.model.as_deref(), now) {
            here(&mut self.tried)
        } else {
            PlacementStep::Full
        }
    }
}
