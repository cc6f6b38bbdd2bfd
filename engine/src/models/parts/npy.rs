//! Arrays of NumPy: a file of one array, with its format and shape in a Python literal at its head.

use crate::checkpoint::CheckpointError;

/// First bytes of a file, before the version.
const MAGIC: &[u8] = b"\x93NUMPY";
/// Most numbers of an array that is read.
const MOST: usize = 1 << 24;

/// An array of numbers, all finite.
#[derive(Debug, Clone, PartialEq)]
pub struct NpyArray {
    /// Path of the file, for errors.
    file: String,
    /// Length of each axis.
    pub shape: Vec<usize>,
    /// Numbers, the last axis first.
    pub numbers: Vec<f32>,
}

impl NpyArray {
    /// Reads the bytes of `file`.
    ///
    /// # Errors
    ///
    /// It is no array of 32 or 64-bit numbers in C order, or has a number that is not finite.
    pub fn read(file: String, bytes: &[u8]) -> Result<Self, CheckpointError> {
        match Self::parse(bytes) {
            Some((shape, numbers)) => Ok(Self { file, shape, numbers }),
            None => Err(wrong(file, "it is no NumPy array of finite 32 or 64-bit numbers in C order")),
        }
    }

    fn parse(bytes: &[u8]) -> Option<(Vec<usize>, Vec<f32>)> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (length, from): (usize, usize) = match rest.first()? {
            1 => (u16::from_le_bytes(rest.get(2..4)?.try_into().ok()?).into(), 4),
            _ => (u32::from_le_bytes(rest.get(2..6)?.try_into().ok()?) as usize, 6),
        };
        let end = from.checked_add(length)?;
        let head = std::str::from_utf8(rest.get(from..end)?).ok()?;
        let after = |key: &str| Some(head.split_once(key)?.1.trim_start_matches([':', ' ']));
        if !after("'fortran_order'")?.starts_with("False") {
            return None;
        }
        let axes = after("'shape'")?.strip_prefix('(')?.split_once(')')?.0;
        let axes = axes.split(',').map(str::trim).filter(|axis| !axis.is_empty());
        let shape: Vec<usize> = axes.map(|axis| axis.parse().ok()).collect::<Option<_>>()?;
        let count = shape.iter().try_fold(1_usize, |count, axis| count.checked_mul(*axis))?;
        let data = rest.get(end..)?;
        let numbers: Vec<f32> = match after("'descr'")?.get(1..4)? {
            "<f4" => of(data, f32::from_le_bytes),
            "<f8" => of(data, |bytes| f64::from_le_bytes(bytes) as f32),
            "<i4" => of(data, |bytes| i32::from_le_bytes(bytes) as f32),
            "<i8" => of(data, |bytes| i64::from_le_bytes(bytes) as f32),
            _ => return None,
        };
        (count <= MOST && numbers.len() == count && numbers.iter().all(|it| it.is_finite())).then_some((shape, numbers))
    }

    /// Fails unless `holds`; the error says what the file must have.
    pub fn check(&self, holds: bool, wanted: &str) -> Result<(), CheckpointError> {
        if holds { Ok(()) } else { Err(wrong(self.file.clone(), &format!("it must have {wanted}"))) }
    }

    /// Numbers as integers below `count`.
    pub fn integers(&self, count: usize) -> Result<Vec<u32>, CheckpointError> {
        let holds = |number: &f32| *number >= 0.0 && number.fract() == 0.0 && (*number as usize) < count;
        self.check(self.numbers.iter().all(holds), &format!("integers from 0 to {}", count - 1))?;
        Ok(self.numbers.iter().map(|number| *number as u32).collect())
    }
}

/// Numbers of `N` bytes each.
fn of<const N: usize>(data: &[u8], read: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    data.chunks_exact(N).filter_map(|bytes| bytes.try_into().ok()).map(read).collect()
}

fn wrong(file: String, message: &str) -> CheckpointError {
    CheckpointError::WrongField { file, field: "array".to_owned(), message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// File of an array with this head and these bytes.
    fn file(head: &str, data: &[u8]) -> Vec<u8> {
        let length = u16::try_from(head.len()).unwrap().to_le_bytes();
        [MAGIC, &[1, 0], &length, head.as_bytes(), data].concat()
    }

    fn read(bytes: &[u8]) -> Result<NpyArray, CheckpointError> {
        NpyArray::read("a.npy".to_owned(), bytes)
    }

    #[test]
    fn arrays_are_read_with_their_shape() {
        let data: Vec<u8> = [3_i64, 0, 2].iter().flat_map(|it| it.to_le_bytes()).collect();
        let head = "{'descr': '<i8', 'fortran_order': False, 'shape': (1, 3), }\n";
        let array = read(&file(head, &data)).unwrap();
        assert_eq!((&array.shape[..], &array.numbers[..]), (&[1, 3][..], &[3.0, 0.0, 2.0][..]));
        assert_eq!(array.integers(4).unwrap(), [3, 0, 2]);
        let error = array.integers(3).unwrap_err().to_string();
        assert!(error.contains("a.npy") && error.contains("0 to 2"), "{error}");
    }

    #[test]
    fn other_files_are_refused() {
        let head = |descr: &str, order: &str, shape: &str| {
            format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n")
        };
        let (number, infinite) = (1_f32.to_le_bytes(), f32::INFINITY.to_le_bytes());
        assert!(read(&file(&head("<f4", "False", "(1,)"), &number)).is_ok());
        for bytes in [
            file(&head("<f2", "False", "(1,)"), &number),
            file(&head("|O", "False", "(1,)"), &number),
            file(&head("<f4", "True", "(1,)"), &number),
            file(&head("<f4", "False", "(2,)"), &number),
            file(&head("<f4", "False", "(18446744073709551615, 3)"), &number),
            file(&head("<f4", "False", "(1,)"), &infinite),
            b"\x93NUMPY\x01\x00\xff\xff".to_vec(),
            b"\x93NUMPY".to_vec(),
            Vec::new(),
        ] {
            assert!(read(&bytes).is_err(), "{bytes:?}");
        }
    }
}
