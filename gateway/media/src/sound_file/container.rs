//! Container of a sound file, by its first bytes: names and media types of uploads are often wrong.

use super::error::SoundFileError;

/// Container that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Container {
    /// RIFF, RF64 or BW64 wave.
    Wav,
    Flac,
    /// MPEG audio, layer III.
    Mp3,
    /// AAC with ADTS headers.
    Adts,
    Ogg,
    /// ISO base media: m4a and mp4.
    Mp4,
    /// Matroska and WebM.
    Matroska,
}

impl Container {
    /// Name for errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wav => "wav",
            Self::Flac => "flac",
            Self::Mp3 => "mp3",
            Self::Adts => "aac",
            Self::Ogg => "ogg",
            Self::Mp4 => "mp4",
            Self::Matroska => "webm",
        }
    }
}

/// Returns the file behind ID3v2 tags, which stand before any other container.
pub(super) fn without_tags(file: &[u8]) -> &[u8] {
    let (mut file, whole) = (file, file.len());
    while let [b'I', b'D', b'3', _, _, flags, a, b, c, d, ..] = *file {
        let size = [a, b, c, d].iter().fold(0, |size, byte| size << 7 | usize::from(byte & 0x7f));
        let footer = if flags & 0x10 != 0 { 10 } else { 0 };
        file = file.get(10 + size + footer..).unwrap_or_default();
    }
    // Padding behind a tag.
    let zeros = if file.len() < whole { file.iter().take_while(|byte| **byte == 0).count() } else { 0 };
    &file[zeros..]
}

/// Returns the container of `file`, which begins without tags.
///
/// # Errors
///
/// The container is known but not read, or unknown.
pub(super) fn detect(file: &[u8]) -> Result<Container, SoundFileError> {
    let form = file.get(8..12).unwrap_or_default();
    let refuse = |container| Err(SoundFileError::Container { container });
    match file {
        [] => refuse("an empty file"),
        [b'R', b'I', b'F', b'F', ..] | [b'R', b'F', b'6', b'4', ..] | [b'B', b'W', b'6', b'4', ..] => match form {
            b"WAVE" => Ok(Container::Wav),
            b"AVI " => refuse("an AVI file"),
            _ => refuse("a RIFF file that is not wave"),
        },
        [b'R', b'I', b'F', b'X', ..] => refuse("a big-endian wave file (RIFX)"),
        [b'r', b'i', b'f', b'f', ..] => refuse("a Wave64 file"),
        [b'f', b'L', b'a', b'C', ..] => Ok(Container::Flac),
        [b'O', b'g', b'g', b'S', ..] => Ok(Container::Ogg),
        [0x1a, 0x45, 0xdf, 0xa3, ..] => Ok(Container::Matroska),
        [_, _, _, _, b'f', b't', b'y', b'p', ..]
        | [_, _, _, _, b'm', b'o', b'o', b'v', ..]
        | [_, _, _, _, b's', b't', b'y', b'p', ..] => Ok(Container::Mp4),
        [b'F', b'O', b'R', b'M', ..] if form.starts_with(b"AIF") => refuse("an AIFF file"),
        [b'c', b'a', b'f', b'f', ..] => refuse("a CAF file"),
        [b'#', b'!', b'A', b'M', b'R', ..] => refuse("an AMR file"),
        [b'.', b's', b'n', b'd', ..] => refuse("an AU file"),
        [0x30, 0x26, 0xb2, 0x75, ..] => refuse("a WMA (ASF) file"),
        [b'w', b'v', b'p', b'k', ..] => refuse("a WavPack file"),
        [b'M', b'A', b'C', b' ', ..] => refuse("a Monkey's Audio file"),
        [b'M', b'T', b'h', b'd', ..] => refuse("a MIDI file"),
        [b'{' | b'[' | b'<', ..] => refuse("text"),
        [0xff, second, ..] if second & 0xe0 == 0xe0 => match (second >> 1 & 3, second & 0x10 != 0) {
            // Layer 0 of a full sync word is ADTS.
            (0, true) => Ok(Container::Adts),
            (1, _) => Ok(Container::Mp3),
            (2, _) => refuse("MPEG audio of layer II"),
            (3, _) => refuse("MPEG audio of layer I"),
            _ => refuse("a file of unknown format"),
        },
        _ => refuse("a file of unknown format"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_before_a_container_are_skipped() {
        let file = b"ID3\x04\0\0\0\0\0\x02xxID3\x03\0\x10\0\0\0\0footer1234\0\0\0fLaC";
        assert_eq!(without_tags(file), b"fLaC");
        assert_eq!(without_tags(b"ID3\x04\0\0\x7f\x7f\x7f\x7f"), b"");
    }

    #[test]
    fn unread_containers_are_named() {
        for (file, name) in [
            (&b"FORM\0\0\0\x2eAIFFCOMM"[..], "AIFF"),
            (b"caff\0\x01", "CAF"),
            (b"RIFF\0\0\0\0AVI LIST", "AVI"),
            (b"riff.\x91\xcf\x11", "Wave64"),
            (b"#!AMR\n", "AMR"),
            (b"\x30\x26\xb2\x75\x8e\x66", "WMA"),
            (b"\xff\xfd\x50\xc4", "layer II"),
            (b"<!doctype html>", "text"),
            (b"hello", "unknown"),
            (b"", "empty"),
        ] {
            let error = detect(file).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("send wav, flac"), "{error}");
        }
        assert_eq!(detect(b"\xff\xf1\x50\x80"), Ok(Container::Adts));
        assert_eq!(detect(b"\xff\xfb\x90\x64"), Ok(Container::Mp3));
    }
}
