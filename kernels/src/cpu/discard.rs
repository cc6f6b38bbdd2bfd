//! Memory that goes back to the system while its allocation stays.

use std::ops::Range;

/// A number whose zero has no bit set.
///
/// # Safety
/// Memory full of zero bits is a list of valid numbers.
pub(super) unsafe trait ZeroBits: Copy {
    /// Allocates zeros; the system commits memory on first use.
    fn zeros(len: usize) -> Vec<Self>;
}

// SAFETY: every pattern of bits is a number.
unsafe impl ZeroBits for f32 {
    fn zeros(len: usize) -> Vec<Self> {
        vec![0.0; len]
    }
}

// SAFETY: every pattern of bits is a number.
unsafe impl ZeroBits for u16 {
    fn zeros(len: usize) -> Vec<Self> {
        vec![0; len]
    }
}

/// Numbers whose first one lies at the beginning of a page, so that parts of whole pages can be discarded one by one.
#[derive(Debug)]
pub(super) struct PageVec<N> {
    numbers: Vec<N>,
    start: usize,
    len: usize,
}

impl<N: ZeroBits> PageVec<N> {
    /// Allocates `len` zeros; the system commits memory on first use.
    pub(super) fn zeros(len: usize) -> Self {
        let spare = page() / size_of::<N>();
        let numbers = N::zeros(len + spare);
        // Without an aligned place every place serves: less memory goes back.
        let start = numbers.as_ptr().align_offset(page()).min(spare);
        Self { numbers, start, len }
    }

    pub(super) fn slice(&self) -> &[N] {
        &self.numbers[self.start..self.start + self.len]
    }

    pub(super) fn slice_mut(&mut self) -> &mut [N] {
        &mut self.numbers[self.start..self.start + self.len]
    }
}

/// Size of a page, in bytes.
fn page() -> usize {
    // SAFETY: it reads a constant of the system.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two()).unwrap_or(4096)
}

/// Gives the pages within `range` of `parts` equal parts of the numbers back to the system. Their numbers become zero; others,
/// and all if the system refuses (locked pages), stay. Returns the bytes given back.
pub(super) fn discard_parts<N: ZeroBits>(numbers: &mut [N], range: &Range<usize>, parts: usize) -> usize {
    let each = numbers.len().checked_div(parts).unwrap_or(0);
    let Some(numbers) = numbers.get_mut(range.start * each..range.end * each) else { return 0 };
    let (page, ends) = (page(), numbers.as_mut_ptr_range());
    let (from, to) = (ends.start.addr().next_multiple_of(page), ends.end.addr() / page * page);
    if from >= to {
        return 0;
    }
    let start = ends.start.cast::<libc::c_void>().with_addr(from);
    // SAFETY: the pages lie within an exclusively borrowed slice.
    if unsafe { zero_pages(start, to - from) } { to - from } else { 0 }
}

/// Gives whole pages back to the system; they read as zeros afterwards. Returns false if the system refuses: then they stay.
///
/// # Safety
/// The pages are the allocator's, no other thread reads or writes them meanwhile, and zero bits are valid there.
#[cfg(target_os = "linux")]
unsafe fn zero_pages(start: *mut libc::c_void, bytes: usize) -> bool {
    // SAFETY: the caller's guarantees. Memory of the allocator is private and anonymous, so its pages read as zeros afterwards.
    unsafe { libc::madvise(start, bytes, libc::MADV_DONTNEED) == 0 }
}

/// Other systems, macOS among them, may keep the pages' numbers, so nothing is given back.
///
/// # Safety
/// None; as on Linux.
#[cfg(not(target_os = "linux"))]
unsafe fn zero_pages(_start: *mut libc::c_void, _bytes: usize) -> bool {
    false
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    const PARTS: usize = 64;

    /// Number of pages of the numbers that are in RAM.
    fn resident<N>(numbers: &[N]) -> usize {
        let bytes = size_of_val(numbers) / page() * page();
        let mut pages = vec![0_u8; bytes / page()];
        let start = numbers.as_ptr().cast::<libc::c_void>().cast_mut();
        // SAFETY: the range is mapped, begins at a page, and the list has a byte for each of its pages.
        assert_eq!(unsafe { libc::mincore(start, bytes, pages.as_mut_ptr()) }, 0);
        pages.iter().filter(|page| **page & 1 == 1).count()
    }

    fn discard_some<N: ZeroBits + Default + PartialEq>(one: N) {
        let each = 2 * page() / size_of::<N>();
        let mut numbers = PageVec::<N>::zeros(PARTS * each);
        numbers.slice_mut().fill(one);
        assert_eq!(resident(numbers.slice()), 2 * PARTS);
        assert_eq!(discard_parts(numbers.slice_mut(), &(3..4), PARTS), 2 * page());
        assert_eq!(discard_parts(numbers.slice_mut(), &(8..24), PARTS), 32 * page());
        assert_eq!(resident(numbers.slice()), 2 * PARTS - 34);
        for (at, part) in numbers.slice().chunks(each).enumerate() {
            let discarded = at == 3 || (8..24).contains(&at);
            let expected = if discarded { N::default() } else { one };
            assert!(part.iter().all(|number| *number == expected), "part {at}");
        }
    }

    #[test]
    fn discarded_parts_leave_memory_and_become_zero() {
        discard_some(1.0_f32);
        discard_some(1_u16);
    }

    #[test]
    fn parts_within_a_page_stay() {
        let mut numbers = PageVec::<f32>::zeros(PARTS * 10);
        numbers.slice_mut().fill(1.5);
        assert_eq!(discard_parts(numbers.slice_mut(), &(1..5), PARTS), 0);
        assert_eq!(discard_parts(numbers.slice_mut(), &(1..65), PARTS), 0, "beyond the end");
        assert_eq!(discard_parts(numbers.slice_mut(), &(0..0), 0), 0);
        assert!(numbers.slice().iter().all(|number| *number == 1.5));
    }
}
