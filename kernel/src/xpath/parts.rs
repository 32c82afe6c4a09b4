//! The operands of operators, for whoever asks the same of all of them.

use super::ir::{BoolExpr, NodeSet, NumExpr, StrExpr};

/// What is done with the nodes of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Looked for: order and repetition do not matter.
    Any,
    /// Counted: repetition matters.
    Each,
    /// Added up or the first taken: repetition and order matter.
    InOrder,
}

/// An operand. The parts of a set are contexts of their own, so it has none here.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub enum Part<'e> {
    Bool(&'e BoolExpr),
    Num(&'e NumExpr),
    Str(&'e StrExpr),
    Set(&'e NodeSet, Use),
}

impl<'e> Part<'e> {
    /// Whether something is true of all operands.
    pub fn all(self, mut is_true: impl FnMut(Part<'e>) -> bool) -> bool {
        match self {
            Part::Bool(expr) => of_bool(expr, &mut is_true),
            Part::Num(expr) => of_num(expr, &mut is_true),
            Part::Str(expr) => of_str(expr, &mut is_true),
            Part::Set(..) => true,
        }
    }

    /// Whether it asks for the position or the size of its own context, as no set does.
    pub fn is_positional(self) -> bool {
        match self {
            Part::Num(NumExpr::Position | NumExpr::Last) => true,
            _ => !self.all(|part| !part.is_positional()),
        }
    }
}

type IsTrue<'e, 'f> = &'f mut dyn FnMut(Part<'e>) -> bool;

fn of_bool<'e>(expr: &'e BoolExpr, is_true: IsTrue<'e, '_>) -> bool {
    use Part::{Bool, Num, Set, Str};
    match expr {
        BoolExpr::Const(_) => true,
        BoolExpr::And(a, b) | BoolExpr::Or(a, b) => is_true(Bool(a)) && is_true(Bool(b)),
        BoolExpr::Not(a) => is_true(Bool(a)),
        BoolExpr::Exists(set) => is_true(Set(set, Use::Any)),
        BoolExpr::Number(a) => is_true(Num(a)),
        BoolExpr::Text(a) | BoolExpr::Lang(a) => is_true(Str(a)),
        BoolExpr::Numbers(_, a, b) => is_true(Num(a)) && is_true(Num(b)),
        BoolExpr::Texts(_, a, b) | BoolExpr::Contains(a, b) | BoolExpr::StartsWith(a, b) => {
            is_true(Str(a)) && is_true(Str(b))
        }
        BoolExpr::SetNumber(_, set, b) => is_true(Set(set, Use::Any)) && is_true(Num(b)),
        BoolExpr::SetText(_, set, b) => is_true(Set(set, Use::Any)) && is_true(Str(b)),
        BoolExpr::Sets(_, a, b) => is_true(Set(a, Use::Any)) && is_true(Set(b, Use::Any)),
    }
}

fn of_num<'e>(expr: &'e NumExpr, is_true: IsTrue<'e, '_>) -> bool {
    use Part::{Bool, Num, Set, Str};
    match expr {
        NumExpr::Const(_) | NumExpr::Position | NumExpr::Last => true,
        NumExpr::Arith(_, a, b) => is_true(Num(a)) && is_true(Num(b)),
        NumExpr::Neg(a) | NumExpr::Round(_, a) => is_true(Num(a)),
        NumExpr::Count(set) => is_true(Set(set, Use::Each)),
        NumExpr::Sum(set) => is_true(Set(set, Use::InOrder)),
        NumExpr::Text(a) | NumExpr::Length(a) => is_true(Str(a)),
        NumExpr::Bool(a) => is_true(Bool(a)),
    }
}

fn of_str<'e>(expr: &'e StrExpr, is_true: IsTrue<'e, '_>) -> bool {
    use Part::{Bool, Num, Set, Str};
    match expr {
        StrExpr::Const(_) => true,
        StrExpr::First(set) | StrExpr::Name(_, set) => is_true(Set(set, Use::InOrder)),
        StrExpr::Number(a) => is_true(Num(a)),
        StrExpr::Bool(a) => is_true(Bool(a)),
        StrExpr::Concat(parts) => parts.iter().all(|part| is_true(Str(part))),
        StrExpr::Before(a, b) | StrExpr::After(a, b) => is_true(Str(a)) && is_true(Str(b)),
        StrExpr::Substring(a, from, length) => {
            is_true(Str(a))
                && is_true(Num(from))
                && length.as_ref().is_none_or(|length| is_true(Num(length)))
        }
        StrExpr::Normalize(a) => is_true(Str(a)),
        StrExpr::Translate(a, b, c) => [a, b, c].into_iter().all(|part| is_true(Str(part))),
    }
}
