//! The character classes of XML 1.0 (fifth edition), as libxml2 tests them.

/// White space: the production `S`.
#[inline]
pub fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// The production `Char`.
pub fn is_char(c: char) -> bool {
    !matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

/// The production `NameStartChar` without the colon.
#[inline]
pub fn is_name_start(c: char) -> bool {
    matches!(c,
        'a'..='z' | 'A'..='Z' | '_' | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}'
        | '\u{f8}'..='\u{2ff}' | '\u{370}'..='\u{37d}' | '\u{37f}'..='\u{1fff}'
        | '\u{200c}'..='\u{200d}' | '\u{2070}'..='\u{218f}' | '\u{2c00}'..='\u{2fef}'
        | '\u{3001}'..='\u{d7ff}' | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}'
        | '\u{10000}'..='\u{effff}')
}

/// The production `NameChar` without the colon.
#[inline]
pub fn is_name_char(c: char) -> bool {
    is_name_start(c)
        || matches!(c, '0'..='9' | '-' | '.' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}'..='\u{2040}')
}

/// The length in bytes of the `NCName` at the start of `text`; 0 when there is none.
#[inline]
pub fn ncname_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    match bytes.first() {
        Some(b'a'..=b'z' | b'A'..=b'Z' | b'_') => {}
        Some(0x80..) => return slow_ncname_length(text),
        _ => return 0,
    }
    let mut length = 1;
    while let Some(&byte) = bytes.get(length) {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'0'..=b'9' | b'-' | b'.' => length += 1,
            0x80.. => return slow_ncname_length(text),
            _ => break,
        }
    }
    length
}

fn slow_ncname_length(text: &str) -> usize {
    let mut chars = text.char_indices();
    match chars.next() {
        Some((_, c)) if is_name_start(c) => {}
        _ => return 0,
    }
    chars.find(|&(_, c)| !is_name_char(c)).map_or(text.len(), |(at, _)| at)
}

/// Whether the whole of `text` is an `NCName`.
pub fn is_ncname(text: &str) -> bool {
    !text.is_empty() && ncname_length(text) == text.len()
}

/// The position of the first character that XML forbids anywhere in a document.
pub fn find_forbidden(text: &str) -> Option<usize> {
    // Whole chunks without an early exit: that is what the compiler vectorises.
    let control = |byte: u8| byte < 0x20 && !is_space(byte);
    let mut chunks = text.as_bytes().chunks(64).enumerate();
    let suspect =
        chunks.find(|(_, chunk)| chunk.iter().fold(false, |any, &byte| any | control(byte)));
    let first_control = suspect.and_then(|(index, chunk)| {
        chunk.iter().position(|&byte| control(byte)).map(|at| index * 64 + at)
    });
    let first_noncharacter =
        if text.is_ascii() { None } else { text.find(['\u{fffe}', '\u{ffff}']) };
    match (first_control, first_noncharacter) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
