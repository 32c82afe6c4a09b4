//! XPath 1.0 to typed operators.

pub mod bound;
pub mod ir;
mod lexer;
pub mod number;
mod parser;
pub mod parts;
pub mod text;
mod typing;

use std::collections::HashMap;

pub use parser::parse;

use crate::error::ExpressionRefused;
use ir::{BoolExpr, Wanted};

/// A compiled expression: what `boolean(text)` means on a document.
#[derive(Debug, Clone)]
pub struct Expression {
    text: String,
    root: BoolExpr,
    wanted: Vec<Wanted>,
}

impl Expression {
    /// Compiles an expression. A prefix that `namespaces` lacks stands for the URI of the same
    /// text; the prefix `lshw` stands for no namespace.
    pub fn new(
        text: &str,
        namespaces: &HashMap<String, String>,
    ) -> Result<Self, ExpressionRefused> {
        let (root, wanted) = parse(text, namespaces)?;
        Ok(Expression { text: text.to_owned(), root, wanted })
    }

    /// The text that was compiled.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The names that its node tests refer to by number.
    pub fn wanted(&self) -> &[Wanted] {
        &self.wanted
    }

    /// Its operators.
    pub fn root(&self) -> &BoolExpr {
        &self.root
    }
}
