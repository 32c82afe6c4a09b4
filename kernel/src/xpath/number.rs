//! Numbers as libxml2 reads, writes and rounds them.
//!
//! Borrowed from `xmlXPathStringEvalNumber`, `xmlXPathFormatNumber` and `xmlXPathRoundFunction`:
//! exponents are read and written, which the recommendation does not have, and the digits are
//! added up in the same order, because the last bit decides comparisons.

use std::fmt::Write;

use super::ir::{Rounding, trim};
use crate::xml::chars::is_space;

/// Digits of a fraction after which libxml2 reads no further, leading zeros not counted.
const MAX_FRACTION: i32 = 20;

/// `number(string)`.
pub fn parse(text: &str) -> f64 {
    let text = trim(text).as_bytes();
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    match read(digits) {
        Some((value, length)) if length == digits.len() => {
            if negative {
                -value
            } else {
                value
            }
        }
        _ => f64::NAN,
    }
}

/// After how many bytes it is certain that a string which begins so is no number, if it is.
pub fn is_none(beginning: &str) -> Option<usize> {
    let bytes = beginning.as_bytes();
    let skip = |from: usize, of: fn(u8) -> bool| {
        bytes[from..].iter().position(|&byte| !of(byte)).map(|length| from + length)
    };
    let digits = skip(0, is_space)?;
    let end = skip(digits, |byte| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'))?;
    skip(end, is_space).map(|last| last + 1)
}

/// Reads an unsigned number at the start of `text`: its value and its length.
pub fn read(text: &[u8]) -> Option<(f64, usize)> {
    let digit =
        |at: usize| text.get(at).filter(|byte| byte.is_ascii_digit()).map(|byte| byte - b'0');
    let mut at = 0;
    let mut value = 0.0_f64;
    while let Some(digit) = digit(at) {
        value = value * 10.0 + f64::from(digit);
        at += 1;
    }
    if at == 0 && (text.first() != Some(&b'.') || digit(1).is_none()) {
        return None;
    }
    if text.get(at) == Some(&b'.') {
        at += 1;
        let mut places = 0;
        let mut fraction = 0.0_f64;
        while digit(at) == Some(0) {
            places += 1;
            at += 1;
        }
        let last = places + MAX_FRACTION;
        while let Some(digit) = digit(at).filter(|_| places < last) {
            fraction = fraction * 10.0 + f64::from(digit);
            places += 1;
            at += 1;
        }
        value += fraction / 10.0_f64.powf(f64::from(places));
        while digit(at).is_some() {
            at += 1;
        }
    }
    if matches!(text.get(at), Some(b'e' | b'E')) {
        at += 1;
        let negative = text.get(at) == Some(&b'-');
        if matches!(text.get(at), Some(b'-' | b'+')) {
            at += 1;
        }
        let mut exponent = 0.0_f64;
        while let Some(digit) = digit(at) {
            if exponent < 1_000_000.0 {
                exponent = exponent * 10.0 + f64::from(digit);
            }
            at += 1;
        }
        value *= 10.0_f64.powf(if negative { -exponent } else { exponent });
    }
    Some((value, at))
}

/// `string(number)`.
pub fn format(number: f64) -> String {
    if number.is_nan() {
        return "NaN".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    if number == 0.0 {
        return "0".into();
    }
    if number > f64::from(i32::MIN) && number < f64::from(i32::MAX) && number.fract() == 0.0 {
        return (number as i32).to_string();
    }
    let magnitude = number.abs();
    if !(1e-5..=1e9).contains(&magnitude) {
        return scientific(number);
    }
    let place = magnitude.log10() as i32;
    let places = if place > 0 { 15 - place - 1 } else { 15 - place };
    strip_zeros(&format!("{number:.*}", places.max(0) as usize)).to_owned()
}

/// C's `%.14e` with trailing zeros of the mantissa removed.
fn scientific(number: f64) -> String {
    let written = format!("{number:.14e}");
    let (mantissa, exponent) = written.split_once('e').expect("an exponent was asked for");
    let exponent: i32 = exponent.parse().expect("an exponent is an integer");
    let mut out = strip_zeros(mantissa).to_owned();
    let sign = if exponent < 0 { '-' } else { '+' };
    write!(out, "e{sign}{:02}", exponent.abs()).expect("a string takes all writes");
    out
}

fn strip_zeros(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

/// `floor()`, `ceiling()` and `round()`.
pub fn round(rounding: Rounding, number: f64) -> f64 {
    match rounding {
        Rounding::Floor => number.floor(),
        Rounding::Ceiling => number.ceil(),
        // Halves go up; what rounds to zero keeps its sign.
        Rounding::Round if (-0.5..0.5).contains(&number) => number * 0.0,
        Rounding::Round => {
            let floor = number.floor();
            if number - floor >= 0.5 { floor + 1.0 } else { floor }
        }
    }
}

/// `boolean(number)`.
pub fn truth(number: f64) -> bool {
    number != 0.0 && !number.is_nan()
}
