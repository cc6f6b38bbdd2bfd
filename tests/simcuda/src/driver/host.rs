//! Host memory that copies read and write.

/// A range of host memory that a caller of the C functions has named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRange {
    address: usize,
    length: usize,
}

impl HostRange {
    /// A range that can be read, or written if a copy goes there.
    ///
    /// # Safety
    /// The range has to stay valid, and untouched by others, until the call that it is given to returns; if it is page-locked,
    /// until the copy has been waited for or the page-locked memory is freed.
    pub unsafe fn new(address: usize, length: usize) -> Self {
        Self { address, length }
    }

    /// Its first byte's address.
    pub fn address(self) -> usize {
        self.address
    }

    /// Bytes.
    pub fn length(self) -> usize {
        self.length
    }

    /// Its bytes.
    pub fn read(self) -> Vec<u8> {
        crate::border::read(self)
    }

    /// Writes all of its bytes.
    pub fn write(self, bytes: &[u8]) {
        crate::border::write(self, bytes);
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
    /// Only kept: C reads and writes it, through its address.
    _pages: Vec<Page>,
    address: usize,
    length: usize,
}

impl Pinned {
    /// Zeros.
    pub fn new(length: usize) -> Self {
        let mut pages = vec![Page { _bytes: [0; PAGE] }; length.div_ceil(PAGE).max(1)];
        let address = pages.as_mut_ptr().expose_provenance();
        Self { _pages: pages, address, length }
    }

    /// Its first byte's address.
    pub fn address(&self) -> usize {
        self.address
    }

    /// Bytes.
    pub fn length(&self) -> usize {
        self.length
    }
}
