//! Matrix products by a whole warp.
//!
//! The layout of elements over lanes follows the manual's figures for `ldmatrix` and for `mma.m16n8k16` with bf16.

use super::addresses::aligned;
use super::block::Block;
use super::warp::{LaneResult, Warp};
use crate::decode::Inst;
use crate::decode::half::of_bf16;
use crate::decode::lanes::{Lanes, WARP};
use crate::fault::{Fault, FaultKind};

/// Low and high half of a register as numbers.
fn pair(bits: u64) -> [f32; 2] {
    [of_bf16(bits as u16), of_bf16((bits >> 16) as u16)]
}

fn whole_warp(active: u32) -> LaneResult<()> {
    if active == u32::MAX {
        return Ok(());
    }
    let lane = active.trailing_zeros() as usize;
    let text = format!("all lanes have to be there, and only {active:#010x} are");
    Err((lane, Fault::new(FaultKind::AbsentLanes, text)))
}

impl Warp {
    pub(super) fn load_matrix(
        &mut self,
        block: &mut Block,
        inst: &Inst,
        count: usize,
        transposed: bool,
        active: u32,
    ) -> LaneResult<()> {
        whole_warp(active)?;
        let addresses = self.addresses(inst.address[0]);
        for matrix in 0..count {
            let mut rows = [[0u16; 8]; 8];
            for (row, values) in rows.iter_mut().enumerate() {
                let lane = matrix * 8 + row;
                let mut bytes = [0; 16];
                let read = aligned(addresses[lane], 16);
                let read = read.and_then(|()| block.shared.read(addresses[lane], &mut bytes, self.who(block, lane)));
                read.map_err(|fault| (lane, fault))?;
                for (value, part) in values.iter_mut().zip(bytes.chunks_exact(2)) {
                    *value = u16::from_le_bytes([part[0], part[1]]);
                }
            }
            let element =
                |row: usize, column: usize| u64::from(if transposed { rows[column][row] } else { rows[row][column] });
            let loaded: Lanes = std::array::from_fn(|lane| {
                let (row, column) = (lane / 4, lane % 4 * 2);
                element(row, column) | element(row, column + 1) << 16
            });
            self.set(inst.dst[matrix], &loaded, active);
        }
        Ok(())
    }

    /// Computes `d = a b + c`: a is 16 by 16, b 16 by 8. A sum is exact and rounded to f32 once; hardware rounds more often.
    pub(super) fn multiply(&mut self, block: &Block, inst: &Inst, active: u32) -> LaneResult<()> {
        whole_warp(active)?;
        let registers: Vec<Lanes> = inst.src.iter().map(|(src, _)| self.value(*src, block)).collect();
        let (a, rest) = registers.split_at(4);
        let (b, c) = rest.split_at(2);
        let mut left = [[0.0f32; 16]; 16];
        let mut right = [[0.0f32; 8]; 16];
        for lane in 0..WARP {
            let (group, two) = (lane / 4, lane % 4 * 2);
            for (part, register) in a.iter().enumerate() {
                let [low, high] = pair(register[lane]);
                let (row, column) = (group + part % 2 * 8, two + part / 2 * 8);
                left[row][column] = low;
                left[row][column + 1] = high;
            }
            for (part, register) in b.iter().enumerate() {
                let [low, high] = pair(register[lane]);
                right[two + part * 8][group] = low;
                right[two + part * 8 + 1][group] = high;
            }
        }
        for (part, start) in c.iter().enumerate() {
            let sums: Lanes = std::array::from_fn(|lane| {
                let (row, column) = (lane / 4 + part / 2 * 8, lane % 4 * 2 + part % 2);
                let start = f64::from(f32::from_bits(start[lane] as u32));
                let sum = (0..16).fold(start, |sum, k| sum + f64::from(left[row][k]) * f64::from(right[k][column]));
                u64::from((sum as f32).to_bits())
            });
            self.set(inst.dst[part], &sums, active);
        }
        Ok(())
    }
}
