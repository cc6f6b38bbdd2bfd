//! The protocol buffers wire format, as far as an ONNX file uses it.

/// Value of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FieldValue<'a> {
    /// A number of up to 64 bits.
    Varint(u64),
    /// Eight bytes, skipped.
    Fixed64,
    /// Four bytes, little-endian.
    Fixed32([u8; 4]),
    /// Text, a message, or packed numbers.
    Bytes(&'a [u8]),
}

impl<'a> FieldValue<'a> {
    pub fn bytes(self) -> Option<&'a [u8]> {
        if let FieldValue::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    pub fn number(self) -> Option<u64> {
        if let FieldValue::Varint(number) = self { Some(number) } else { None }
    }

    pub fn text(self) -> Option<&'a str> {
        self.bytes().and_then(|bytes| std::str::from_utf8(bytes).ok())
    }
}

/// Iterates over a message's fields (number and value). Yields `None` for the first malformed field and ends.
pub fn fields(message: &[u8]) -> impl Iterator<Item = Option<(u64, FieldValue<'_>)>> {
    let mut rest = Some(message);
    std::iter::from_fn(move || {
        let mut bytes = rest.filter(|bytes| !bytes.is_empty())?;
        let field = field(&mut bytes);
        rest = field.is_some().then_some(bytes);
        Some(field)
    })
}

/// Returns the numbers in a packed field; `None` if they are malformed.
pub fn packed(mut bytes: &[u8]) -> Option<Vec<u64>> {
    let mut numbers = Vec::new();
    while !bytes.is_empty() {
        numbers.push(number(&mut bytes)?);
    }
    Some(numbers)
}

fn field<'a>(bytes: &mut &'a [u8]) -> Option<(u64, FieldValue<'a>)> {
    let key = number(bytes)?;
    let value = match key & 7 {
        0 => FieldValue::Varint(number(bytes)?),
        1 => {
            take(bytes, 8)?;
            FieldValue::Fixed64
        }
        2 => {
            let length = usize::try_from(number(bytes)?).ok()?;
            FieldValue::Bytes(take(bytes, length)?)
        }
        5 => FieldValue::Fixed32(take(bytes, 4)?.try_into().ok()?),
        _ => return None,
    };
    Some((key >> 3, value))
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)?[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_in_order() {
        let message = [0x08, 0x96, 0x01, 0x12, 2, b'h', b'i', 0x1d, 1, 2, 3, 4, 0x21, 0, 0, 0, 0, 0, 0, 0, 0];
        let read: Option<Vec<_>> = fields(&message).collect();
        let expected = [
            (1, FieldValue::Varint(150)),
            (2, FieldValue::Bytes(b"hi")),
            (3, FieldValue::Fixed32([1, 2, 3, 4])),
            (4, FieldValue::Fixed64),
        ];
        assert_eq!(read.unwrap(), expected);
        assert_eq!(packed(&[0x96, 0x01, 7]), Some(vec![150, 7]));
    }

    #[test]
    fn cut_messages_are_refused() {
        let message = [0x08, 0x96, 0x01, 0x12, 2, b'h', b'i'];
        for length in [1, 2, 4, 5, 6] {
            assert!(fields(&message[..length]).any(|field| field.is_none()), "{length} bytes");
        }
        assert!(fields(&[0x0b]).any(|field| field.is_none()), "groups are unknown");
        assert_eq!(packed(&[0xff; 11]), None);
    }
}
