//! The string functions.

use std::borrow::Cow;

use crate::xml::chars::is_space;

/// `contains(a, b)`.
#[inline]
pub fn contains(text: &str, part: &str) -> bool {
    part.len() <= text.len() && memchr::memmem::find(text.as_bytes(), part.as_bytes()).is_some()
}

/// `substring-before(a, b)`.
pub fn before<'a>(text: &'a str, mark: &str) -> &'a str {
    text.find(mark).map_or("", |at| &text[..at])
}

/// `substring-after(a, b)`.
pub fn after<'a>(text: &'a str, mark: &str) -> &'a str {
    text.find(mark).map_or("", |at| &text[at + mark.len()..])
}

/// `substring(text, from)` and `substring(text, from, length)`: the characters at the positions p
/// with `p >= round(from)` and `p < round(from) + round(length)`.
pub fn substring(text: &str, from: f64, length: Option<f64>) -> &str {
    let round = |number: f64| {
        let floor = number.floor();
        if number - floor >= 0.5 { floor + 1.0 } else { floor }
    };
    let first = round(from);
    let end = length.map_or(f64::INFINITY, |length| first + round(length));
    // NaN must fail both tests.
    let inside = |position: f64| position >= first && position < end;
    let mut chosen = text
        .char_indices()
        .enumerate()
        .filter(|(index, _)| inside((index + 1) as f64))
        .map(|(_, (at, c))| (at, at + c.len_utf8()));
    match chosen.next() {
        None => "",
        Some((start, end)) => &text[start..chosen.last().map_or(end, |(_, end)| end)],
    }
}

/// `normalize-space(text)`.
pub fn normalize(text: &str) -> String {
    let words = text.split(|c: char| c.is_ascii() && is_space(c as u8));
    let mut out = String::with_capacity(text.len());
    for word in words.filter(|word| !word.is_empty()) {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
    out
}

/// `translate(text, from, to)`.
pub fn translate(text: &str, from: &str, to: &str) -> String {
    let replaced = |c: char| match from.chars().position(|candidate| candidate == c) {
        None => Some(c),
        Some(place) => to.chars().nth(place),
    };
    let mut ascii = [false; 128];
    from.chars().filter(char::is_ascii).for_each(|c| ascii[c as usize] = true);
    let is_ascii = from.is_ascii();
    let is_from = |c: char| match ascii.get(c as usize) {
        Some(&is_from) => is_from,
        None => !is_ascii && from.contains(c),
    };
    // What is not in `from` is copied as it stands.
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(is_from) {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let mut chars = after.chars();
        out.extend(chars.next().and_then(replaced));
        rest = chars.as_str();
    }
    out.push_str(rest);
    out
}

/// Whether the language of an `xml:lang` value is `wanted` or a part of it.
pub fn is_language(value: &str, wanted: &str) -> bool {
    let (value, wanted) = (value.as_bytes(), wanted.as_bytes());
    value.get(..wanted.len()).is_some_and(|start| start.eq_ignore_ascii_case(wanted))
        && matches!(value.get(wanted.len()), None | Some(b'-'))
}

/// Joins two texts, without copying when one is empty.
pub fn join<'a>(first: Cow<'a, str>, second: Cow<'a, str>) -> Cow<'a, str> {
    if first.is_empty() { second } else { first + second }
}
