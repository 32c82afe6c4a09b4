//! Tokens, with the recommendation's rules for telling names from operators.

use crate::error::ExpressionRefused;
use crate::xml::chars::{is_space, ncname_length};

use super::number;

/// A token. Names are `NCName`s; a qualified name is three tokens.
#[derive(Debug, Clone, PartialEq)]
pub enum Token<'a> {
    Number(f64),
    Literal(&'a str),
    Name(&'a str),
    /// `and`, `or`, `div`, `mod`, and `*` as multiplication.
    Operator(&'a str),
    /// `*` as a node test.
    Star,
    /// Everything else.
    Symbol(&'a str),
    End,
}

/// A token and the byte at which it begins.
pub type Spanned<'a> = (Token<'a>, usize);

const SYMBOLS: [&str; 22] = [
    "::", "//", "..", "!=", "<=", ">=", "(", ")", "[", "]", ".", "@", ",", "/", "|", "+", "-", "=",
    "<", ">", ":", "$",
];

/// Splits an expression. Columns of errors count characters from 1.
pub fn tokens(text: &str) -> Result<Vec<Spanned<'_>>, ExpressionRefused> {
    let mut tokens: Vec<Spanned<'_>> = Vec::new();
    let mut at = 0;
    loop {
        at += text.as_bytes()[at..].iter().take_while(|&&byte| is_space(byte)).count();
        let rest = &text[at..];
        let Some(&first) = rest.as_bytes().first() else {
            tokens.push((Token::End, at));
            return Ok(tokens);
        };
        let operand_ended = ends_operand(tokens.last());
        let (token, length) = match first {
            b'"' | b'\'' => match rest[1..].find(first as char) {
                Some(end) => (Token::Literal(&rest[1..=end]), end + 2),
                None => return Err(refused(text, at, "the literal is not closed")),
            },
            b'*' if operand_ended => (Token::Operator("*"), 1),
            b'*' => (Token::Star, 1),
            _ => {
                let name = ncname_length(rest);
                if name > 0 {
                    let word = &rest[..name];
                    let operator = operand_ended && matches!(word, "and" | "or" | "div" | "mod");
                    (if operator { Token::Operator(word) } else { Token::Name(word) }, name)
                } else if let Some((value, length)) = number::read(rest.as_bytes()) {
                    (Token::Number(value), length)
                } else if let Some(symbol) =
                    SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol))
                {
                    (Token::Symbol(&rest[..symbol.len()]), symbol.len())
                } else {
                    return Err(refused(text, at, "unexpected character"));
                }
            }
        };
        tokens.push((token, at));
        at += length;
    }
}

/// Whether the token before makes a following `*` or name an operator.
fn ends_operand(last: Option<&Spanned<'_>>) -> bool {
    match last {
        Some((Token::Number(_) | Token::Literal(_) | Token::Name(_) | Token::Star, _)) => true,
        Some((Token::Symbol(symbol), _)) => matches!(*symbol, ")" | "]" | "." | ".."),
        _ => false,
    }
}

/// An error at a byte of the expression.
pub fn refused(text: &str, at: usize, reason: impl Into<String>) -> ExpressionRefused {
    ExpressionRefused { reason: reason.into(), column: 1 + text[..at].chars().count() }
}
