//! Tables whose entries are looked up by id.

/// Entries of one width, in a checkpoint's numbers where those are bfloat16.
#[derive(Debug, Clone)]
pub struct Table {
    /// Numbers in an entry.
    pub width: usize,
    numbers: Numbers,
}

/// `[entry][width]`
#[derive(Debug, Clone)]
enum Numbers {
    F32(Vec<f32>),
    Bf16(Vec<u16>),
}

impl Table {
    /// Entries of single precision.
    pub fn new(width: usize, numbers: Vec<f32>) -> Self {
        Self { width, numbers: Numbers::F32(numbers) }
    }

    /// Entries of bfloat16, by their bits.
    pub fn new_bf16(width: usize, numbers: Vec<u16>) -> Self {
        Self { width, numbers: Numbers::Bf16(numbers) }
    }

    /// Writes an entry to `to`, widened, which is exact.
    pub fn look_up(&self, id: usize, to: &mut [f32]) {
        let range = id * self.width..(id + 1) * self.width;
        match &self.numbers {
            Numbers::F32(numbers) => to.copy_from_slice(&numbers[range]),
            Numbers::Bf16(numbers) => {
                for (to, &bits) in to.iter_mut().zip(&numbers[range]) {
                    *to = f32::from_bits(u32::from(bits) << 16);
                }
            }
        }
    }
}
