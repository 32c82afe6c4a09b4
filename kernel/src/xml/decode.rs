//! Bytes to text: UTF-8, and the few other encodings that need no table.

use std::borrow::Cow;

use crate::error::DocumentRefused;

/// Decodes a document. UTF-8 unless a byte order mark or the XML declaration says ISO-8859-1,
/// US-ASCII or UTF-16; every other encoding is refused, because it is transcoded at ingest.
pub fn decode(bytes: &[u8]) -> Result<Cow<'_, str>, DocumentRefused> {
    let utf8 = bytes.strip_prefix(b"\xef\xbb\xbf");
    if utf8.is_none() {
        match bytes {
            [0xff, 0xfe, rest @ ..] => return utf16(rest, u16::from_le_bytes),
            [0xfe, 0xff, rest @ ..] => return utf16(rest, u16::from_be_bytes),
            _ => {}
        }
    }
    let body = utf8.unwrap_or(bytes);
    let declared = declared_encoding(body).map(str::to_ascii_lowercase);
    match declared.as_deref() {
        None | Some("utf-8" | "utf8") => from_utf8(body),
        // A mark wins over the declaration in libxml2.
        Some(_) if utf8.is_some() => from_utf8(body),
        Some("us-ascii" | "ascii") => match body.iter().position(|byte| !byte.is_ascii()) {
            None => from_utf8(body),
            Some(at) => Err(invalid(body, at)),
        },
        Some("iso-8859-1" | "latin1" | "iso-latin-1" | "latin-1") => {
            Ok(Cow::Owned(body.iter().map(|&byte| byte as char).collect()))
        }
        Some(other) => Err(DocumentRefused {
            reason: format!("Unsupported encoding: {other}"),
            line: 1,
            column: 1,
        }),
    }
}

fn from_utf8(bytes: &[u8]) -> Result<Cow<'_, str>, DocumentRefused> {
    std::str::from_utf8(bytes)
        .map(Cow::Borrowed)
        .map_err(|error| invalid(bytes, error.valid_up_to()))
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<Cow<'_, str>, DocumentRefused> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let decoded =
        char::decode_utf16(pairs.iter().map(|&pair| unit(pair))).collect::<Result<String, _>>();
    match decoded {
        Ok(text) if rest.is_empty() => Ok(Cow::Owned(text)),
        _ => Err(invalid(bytes, 0)),
    }
}

fn invalid(bytes: &[u8], at: usize) -> DocumentRefused {
    let before = &bytes[..at];
    let line_start =
        before.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
    DocumentRefused {
        reason: "Invalid bytes in character encoding".into(),
        line: 1 + before.iter().filter(|&&byte| byte == b'\n').count(),
        column: 1 + String::from_utf8_lossy(&before[line_start..]).chars().count(),
    }
}

/// The value of the encoding pseudo-attribute of `<?xml ...?>`; the parser checks its syntax later.
fn declared_encoding(bytes: &[u8]) -> Option<&str> {
    let declaration = bytes.strip_prefix(b"<?xml")?;
    let end = memchr::memmem::find(declaration, b"?>")?;
    let declaration = std::str::from_utf8(&declaration[..end]).ok()?;
    let after = declaration.split_once("encoding")?.1.trim_start().strip_prefix('=')?.trim_start();
    let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    after[1..].split_once(quote).map(|(name, _)| name)
}
