//! Register names: blocks in braces may declare registers that hide those outside.

use std::collections::HashMap;

use super::ast::{Reg, Special};

/// Declared registers, by scope.
#[derive(Default)]
pub struct Scopes {
    open: Vec<Scope>,
    /// Number of registers so far.
    pub count: u32,
}

#[derive(Default)]
struct Scope {
    single: HashMap<String, Reg>,
    /// Declarations such as `%r<10>`: the prefix, its first register, its count.
    ranges: HashMap<String, (Reg, u32)>,
}

impl Scopes {
    /// Begins a block.
    pub fn open(&mut self) {
        self.open.push(Scope::default());
    }

    /// Ends a block; false if none is open.
    pub fn close(&mut self) -> bool {
        self.open.pop().is_some()
    }

    /// Number of open blocks.
    pub fn depth(&self) -> usize {
        self.open.len()
    }

    /// Declares a register.
    pub fn single(&mut self, name: String, bits: u32) {
        let reg = Reg { index: self.count, bits };
        self.count += 1;
        if let Some(scope) = self.open.last_mut() {
            scope.single.insert(name, reg);
        }
    }

    /// Declares the registers `prefix0` to `prefix(count - 1)`.
    pub fn range(&mut self, prefix: String, count: u32, bits: u32) {
        let first = Reg { index: self.count, bits };
        self.count += count;
        if let Some(scope) = self.open.last_mut() {
            scope.ranges.insert(prefix, (first, count));
        }
    }

    /// Looks up a register by name.
    pub fn find(&self, name: &str) -> Option<Reg> {
        let prefix = name.trim_end_matches(|sign: char| sign.is_ascii_digit());
        let number = name[prefix.len()..].parse::<u32>().ok();
        self.open.iter().rev().find_map(|scope| {
            let of_range = || {
                let (first, count) = scope.ranges.get(prefix)?;
                let number = number.filter(|number| number < count)?;
                Some(Reg { index: first.index + number, bits: first.bits })
            };
            scope.single.get(name).copied().or_else(of_range)
        })
    }
}

/// Looks up a special register by name.
pub fn special(name: &str) -> Option<Special> {
    const MASKS: [&str; 5] = ["%lanemask_eq", "%lanemask_lt", "%lanemask_le", "%lanemask_gt", "%lanemask_ge"];
    if let Some(which) = MASKS.iter().position(|mask| *mask == name) {
        return Some(Special::LaneMask(which as u32));
    }
    match name {
        "%laneid" => return Some(Special::Lane),
        "%warpid" => return Some(Special::Warp),
        "%dynamic_smem_size" => return Some(Special::DynamicShared),
        _ => {}
    }
    let (base, axis) = name.split_once('.')?;
    let axis = ["x", "y", "z"].iter().position(|known| *known == axis)?;
    match base {
        "%tid" => Some(Special::Tid(axis)),
        "%ntid" => Some(Special::Ntid(axis)),
        "%ctaid" => Some(Special::Ctaid(axis)),
        "%nctaid" => Some(Special::Nctaid(axis)),
        _ => None,
    }
}
