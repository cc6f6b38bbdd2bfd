//! Host memory that copies read and write.

/// A range of host memory that a caller of the C functions named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRange {
    address: usize,
    length: usize,
}

impl HostRange {
    /// Creates a range; it is readable, and writable if a copy writes to it.
    ///
    /// # Safety
    /// The range stays valid, and untouched by others, until the call that receives it returns; if it is page-locked, until the copy was
    /// waited for or the page-locked memory is freed.
    pub unsafe fn new(address: usize, length: usize) -> Self {
        Self { address, length }
    }

    /// Address of the first byte.
    pub fn address(self) -> usize {
        self.address
    }

    /// Length in bytes.
    pub fn length(self) -> usize {
        self.length
    }

    /// Reads all bytes.
    pub fn read(self) -> Vec<u8> {
        // A pointer of an empty range may be null.
        if self.length == 0 {
            return Vec::new();
        }
        // SAFETY: the creator of the range guarantees that it is readable.
        unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(self.address), self.length).to_vec() }
    }

    /// Writes all bytes.
    pub fn write(self, bytes: &[u8]) {
        let length = bytes.len().min(self.length);
        if length == 0 {
            return;
        }
        // SAFETY: the creator of the range guarantees that it is writable; `bytes` is our own.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), std::ptr::with_exposed_provenance_mut(self.address), length);
        }
    }
}

/// Bytes of a page.
const PAGE: usize = 4096;

#[derive(Clone)]
#[repr(align(4096))]
struct Page {
    _bytes: [u8; PAGE],
}

/// Page-locked host memory.
pub struct Pinned {
    /// Kept alive only: C reads and writes it through its address.
    _pages: Vec<Page>,
    address: usize,
    length: usize,
}

impl Pinned {
    /// Allocates zeroed memory of `length` bytes.
    pub fn new(length: usize) -> Self {
        let mut pages = vec![Page { _bytes: [0; PAGE] }; length.div_ceil(PAGE).max(1)];
        let address = pages.as_mut_ptr().expose_provenance();
        Self { _pages: pages, address, length }
    }

    /// Address of the first byte.
    pub fn address(&self) -> usize {
        self.address
    }

    /// Length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }
}
