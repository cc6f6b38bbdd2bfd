//! Pools of reused buffers: a step that repeats allocates nothing and finds its tensors at the same addresses.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// Numbers of a buffer from which on it is freed if nobody uses it: 64 KiB.
const LARGE: usize = 16 << 10;

/// Pool of buffers; a buffer returns when it is dropped. Clones share them.
///
/// The free buffer with the lowest number is taken, in whatever order buffers returned: from an empty step on, the same operations get the
/// same buffers. The largest step bounds the memory; [`Arena::shrink`] forgets those of long ago.
#[derive(Clone, Default)]
pub struct Arena(Arc<Mutex<Vec<SizeClass>>>);

/// Buffers of one size class.
#[derive(Default)]
struct SizeClass {
    /// Buffers by number; `None` while one is in use.
    buffers: Vec<Option<Vec<f32>>>,
    /// All buffers below this number are in use.
    lowest: usize,
    /// Buffers from this number on were not used since the last [`Arena::shrink`].
    used: usize,
}

/// Numbers of a tensor; they return to their arena on drop.
pub struct Buffer {
    values: Vec<f32>,
    /// Origin: arena, shelf and number; `None` for numbers from the host.
    home: Option<(Arena, usize, usize)>,
}

impl Arena {
    /// Returns a buffer of `len` zeros.
    pub fn zeros(&self, len: usize) -> Buffer {
        let mut buffer = self.empty(len);
        buffer.values.clear();
        buffer.values.resize(len, 0.0);
        buffer
    }

    /// Returns `len` numbers with stale contents, for results that are fully overwritten.
    pub fn uninitialised(&self, len: usize) -> Buffer {
        let mut buffer = self.empty(len);
        buffer.values.resize(len, 0.0);
        buffer
    }

    /// Returns a copy of `values`.
    pub fn copy(&self, values: &[f32]) -> Buffer {
        let mut buffer = self.empty(values.len());
        buffer.values.clear();
        buffer.values.extend_from_slice(values);
        buffer
    }

    /// Frees the large buffers that nobody used since the last call. True if large ones are left.
    pub fn shrink(&self) -> bool {
        let mut left = false;
        let mut shelves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for shelf in shelves.iter_mut() {
            let used = std::mem::take(&mut shelf.used);
            let free =
                shelf.buffers.iter_mut().enumerate().filter_map(|(number, buffer)| Some((number, buffer.as_mut()?)));
            for (number, values) in free.filter(|(_, values)| values.capacity() >= LARGE) {
                if number < used {
                    left = true;
                } else {
                    *values = Vec::new();
                }
            }
        }
        left
    }

    /// Returns a buffer with capacity for `len` numbers and its stale contents.
    fn empty(&self, len: usize) -> Buffer {
        let (at, capacity) = size_class(len);
        let mut shelves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if shelves.len() <= at {
            shelves.resize_with(at + 1, SizeClass::default);
        }
        let shelf = &mut shelves[at];
        let free = shelf.buffers[shelf.lowest..].iter().position(Option::is_some);
        let number = free.map_or(shelf.buffers.len(), |free| shelf.lowest + free);
        shelf.lowest = number + 1;
        shelf.used = shelf.used.max(number + 1);
        if number == shelf.buffers.len() {
            shelf.buffers.push(None);
        }
        let values = shelf.buffers[number].take();
        drop(shelves);
        let values = values.filter(|values| values.capacity() >= capacity);
        let values = values.unwrap_or_else(|| Vec::with_capacity(capacity));
        Buffer { values, home: Some((self.clone(), at, number)) }
    }
}

/// Size class of `len` numbers and its capacity: four classes to a power of two, so at most a quarter is unused.
fn size_class(len: usize) -> (usize, usize) {
    const LEAST: usize = 16;
    if len <= LEAST {
        return (0, LEAST);
    }
    // The capacity is 5, 6, 7 or 8 steps.
    let step = len.next_power_of_two() / 8;
    let capacity = len.next_multiple_of(step);
    let octave = (step * 4 / LEAST).trailing_zeros() as usize;
    (1 + octave * 4 + capacity / step - 5, capacity)
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Arena")
    }
}

impl From<Vec<f32>> for Buffer {
    fn from(values: Vec<f32>) -> Self {
        Self { values, home: None }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some((arena, shelf, number)) = self.home.take() {
            let values = std::mem::take(&mut self.values);
            let mut shelves = arena.0.lock().unwrap_or_else(PoisonError::into_inner);
            let shelf = &mut shelves[shelf];
            shelf.buffers[number] = Some(values);
            shelf.lowest = shelf.lowest.min(number);
        }
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        match &self.home {
            Some((arena, ..)) => arena.copy(&self.values),
            None => Self { values: self.values.clone(), home: None },
        }
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.values
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.values.fmt(f)
    }
}

impl PartialEq for Buffer {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

/// Pool of reusable objects that keep their allocations; clones share them.
pub struct BufferPool<S>(Arc<Mutex<Vec<S>>>);

/// A pooled object; it returns to its pool on drop.
pub struct PooledBuffer<S: Default> {
    value: S,
    home: BufferPool<S>,
}

impl<S: Default> BufferPool<S> {
    /// Takes a free object, or makes a new one.
    pub fn take(&self) -> PooledBuffer<S> {
        let value = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        PooledBuffer { value: value.unwrap_or_default(), home: self.clone() }
    }
}

impl<S> Default for BufferPool<S> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<S> Clone for BufferPool<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> fmt::Debug for BufferPool<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spares")
    }
}

impl<S: Default> Drop for PooledBuffer<S> {
    fn drop(&mut self) {
        let value = std::mem::take(&mut self.value);
        self.home.0.lock().unwrap_or_else(PoisonError::into_inner).push(value);
    }
}

impl<S: Default> Deref for PooledBuffer<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.value
    }
}

impl<S: Default> DerefMut for PooledBuffer<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.value
    }
}

/// Pool of shared lists of ids and row indices; a list is reused after its last handle is dropped.
#[derive(Debug, Clone, Default)]
pub struct WordListPool(Arc<Mutex<Vec<Arc<Vec<u32>>>>>);

impl WordListPool {
    /// Returns a list of at most `len` numbers, written by `fill`. It takes the smallest free list with room, else the largest, so that
    /// short lists leave the long ones free.
    pub fn list(&self, len: usize, fill: impl FnOnce(&mut Vec<u32>)) -> Arc<Vec<u32>> {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let free = lists.iter_mut().enumerate().filter_map(|(at, list)| Some((at, Arc::get_mut(list)?.capacity())));
        let best = free.min_by_key(|&(_, room)| if room < len { (true, usize::MAX - room) } else { (false, room) });
        let mut list = best.map(|(at, _)| lists.swap_remove(at)).unwrap_or_default();
        drop(lists);
        if let Some(words) = Arc::get_mut(&mut list) {
            words.clear();
            fill(words);
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&list));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_requests_get_the_same_buffers() {
        let arena = Arena::default();
        // Returned in a different order than taken.
        let step = |kept: usize| {
            let mut buffers = vec![arena.zeros(5), arena.uninitialised(8), arena.zeros(100), arena.copy(&[1.0; 7])];
            let addresses: Vec<_> = buffers.iter().map(|buffer| buffer.as_ptr()).collect();
            let again = buffers.remove(1).as_ptr();
            assert_eq!(arena.uninitialised(6).as_ptr(), again, "the lowest free buffer is taken");
            buffers.rotate_left(kept % 3);
            addresses
        };
        let first = step(0);
        for kept in 1..6 {
            assert_eq!(step(kept), first);
        }
    }

    #[test]
    fn large_buffers_are_freed_once_unused() {
        let arena = Arena::default();
        let capacities = || -> Vec<usize> {
            let shelves = arena.0.lock().unwrap();
            shelves.iter().flat_map(|shelf| &shelf.buffers).flatten().map(Vec::capacity).collect()
        };
        drop((arena.zeros(LARGE), arena.zeros(LARGE), arena.zeros(100)));
        assert!(arena.shrink(), "they were used");
        let held = arena.zeros(LARGE);
        assert!(!arena.shrink(), "one is freed, and the other is in use");
        assert_eq!(capacities(), [112, 0]);
        drop(held);
        assert!(!arena.shrink());
        assert_eq!(capacities(), [112, 0, 0]);
        assert_eq!((arena.zeros(LARGE).len(), arena.uninitialised(LARGE - 1).len()), (LARGE, LARGE - 1));
    }

    #[test]
    fn shelves_waste_at_most_a_fourth() {
        let mut last = (0, 0);
        for len in 0..5000 {
            let (at, capacity) = size_class(len);
            assert!(capacity >= len && (len <= 16 || (capacity - len) * 4 <= len), "{len} in {capacity}");
            let expected = if capacity == last.1 { last.0 } else { last.0 + usize::from(last.1 > 0) };
            assert_eq!(at, expected, "another shelf for each capacity");
            last = (at, capacity);
        }
    }

    #[test]
    fn short_lists_leave_the_long_one_alone() {
        let words = WordListPool::default();
        let take = |len: usize| words.list(len, |list| list.resize(len, 0));
        let held = [take(100), take(3), take(5)];
        let long = held[0].as_ptr();
        drop(held);
        for _ in 0..5 {
            // In a different order than before.
            let (short, other) = (take(4), take(2));
            assert!(short.as_ptr() != long && other.as_ptr() != long);
            assert_eq!(take(90).as_ptr(), long);
        }
    }

    #[test]
    fn buffers_are_as_asked_whatever_they_held() {
        let arena = Arena::default();
        drop(arena.copy(&[7.0; 16]));
        assert_eq!(*arena.zeros(9), [0.0; 9]);
        assert_eq!(arena.uninitialised(12).len(), 12);
        assert_eq!(arena.uninitialised(0).len(), 0);
        let copy = arena.copy(&[1.0, 2.0, 3.0]);
        assert_eq!((&*copy, &*copy.clone()), (&[1.0, 2.0, 3.0][..], &[1.0, 2.0, 3.0][..]));
        assert_ne!(copy.clone().as_ptr(), copy.as_ptr());
    }
}
