//! References, and the text between markup.

use std::borrow::Cow;

use super::chars::is_char;

/// What went wrong at which byte of the text that was decoded.
pub type TextError = (usize, &'static str);

/// Expands the references of character data that holds at least one `&`.
pub fn expand(raw: &str, out: &mut String) -> Result<(), TextError> {
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'&', &raw.as_bytes()[at..]) {
        out.push_str(&raw[at..at + found]);
        at += found;
        at += reference(&raw[at..], out).map_err(|reason| (at, reason))?;
    }
    out.push_str(&raw[at..]);
    Ok(())
}

/// The value of an attribute: references expanded, literal white space turned into spaces.
pub fn attribute(raw: &str) -> Result<Cow<'_, str>, TextError> {
    let plain = !raw.bytes().any(|byte| matches!(byte, b'&' | b'\t' | b'\n'));
    if plain {
        return Ok(Cow::Borrowed(raw));
    }
    let mut out = String::with_capacity(raw.len());
    let mut at = 0;
    while let Some(found) = memchr::memchr3(b'&', b'\t', b'\n', &raw.as_bytes()[at..]) {
        out.push_str(&raw[at..at + found]);
        at += found;
        if raw.as_bytes()[at] == b'&' {
            at += reference(&raw[at..], &mut out).map_err(|reason| (at, reason))?;
        } else {
            out.push(' ');
            at += 1;
        }
    }
    out.push_str(&raw[at..]);
    Ok(Cow::Owned(out))
}

/// Expands the reference at the start of `text` and returns its length in bytes.
fn reference(text: &str, out: &mut String) -> Result<usize, &'static str> {
    let end = memchr::memchr(b';', text.as_bytes()).ok_or("EntityRef: expecting ';'")?;
    let body = &text[1..end];
    let character = match body {
        "lt" => '<',
        "gt" => '>',
        "amp" => '&',
        "quot" => '"',
        "apos" => '\'',
        _ => {
            let digits = body.strip_prefix('#').ok_or("Entity not defined")?;
            character(digits).ok_or("xmlParseCharRef: invalid xmlChar value")?
        }
    };
    out.push(character);
    Ok(end + 1)
}

fn character(digits: &str) -> Option<char> {
    let (digits, radix) = match digits.strip_prefix('x') {
        Some(hex) => (hex, 16),
        None => (digits, 10),
    };
    // `from_str_radix` takes a sign, a reference does not.
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return None;
    }
    let significant = digits.trim_start_matches('0');
    let code =
        if significant.is_empty() { 0 } else { u32::from_str_radix(significant, radix).ok()? };
    char::from_u32(code).filter(|&c| is_char(c))
}
