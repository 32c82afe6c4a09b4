//! Expressions to functions of a node.
//!
//! A path is a chain of functions from its end to its start: each step is "what the rest gives for
//! the nodes that I lead to, joined". A step that leads up or sideways reads a field of the
//! surroundings instead, which is worked out on the way down.

use super::free;
use super::program::{Atom, Env, Func, FuncId, Kind, Program, Use, Way};
use super::values::Op;
use crate::plan::anchors::{ValueTest, constant};
use crate::plan::shared::AllShared;
use crate::xpath::ir::{BoolExpr, Cmp, NodeSet, NumExpr, StrExpr};
use crate::xpath::parts::Part;

/// Bits of a field that is no boolean.
const WIDE: u32 = 24;

/// Compiles one operator. None stands for what only the interpreter can evaluate.
#[derive(Default)]
pub struct Compiler<'a> {
    pub program: Program<'a>,
    bits: u32,
    /// Whether what is compiled is part of a predicate.
    is_inside: bool,
    /// What comparisons of sets can have in common.
    shared: AllShared<'a>,
}

impl<'a> Compiler<'a> {
    pub fn new(shared: AllShared<'a>) -> Self {
        Compiler { shared, ..Compiler::default() }
    }

    /// The first nodes of what is compared.
    pub fn firsts(&mut self, expr: &'a BoolExpr) -> Option<Env> {
        match expr {
            BoolExpr::Sets(_, a, b) => {
                Some(self.used(a, Use::First, None)? | self.used(b, Use::First, None)?)
            }
            BoolExpr::SetText(_, set, b) => Some(self.used(set, Use::First, None)? | self.str(b)?),
            _ => None,
        }
    }

    pub fn bool(&mut self, expr: &'a BoolExpr) -> Option<Env> {
        if self.is_inside && !matches!(expr, BoolExpr::Const(_)) && free::is_free(Part::Bool(expr))
        {
            return self.condition(expr);
        }
        match expr {
            BoolExpr::Const(_) => Some(0),
            BoolExpr::And(a, b) | BoolExpr::Or(a, b) => Some(self.bool(a)? | self.bool(b)?),
            BoolExpr::Not(a) => self.bool(a),
            BoolExpr::Exists(set) => self.used(set, Use::Exists, None),
            BoolExpr::Number(a) => self.num(a),
            BoolExpr::Text(a) => self.str(a),
            BoolExpr::Numbers(_, a, b) => Some(self.num(a)? | self.num(b)?),
            BoolExpr::Texts(..) | BoolExpr::Contains(..) | BoolExpr::StartsWith(..) => {
                match first_test(expr) {
                    Some((set, test)) => self.used(set, Use::FirstTest, Some(test)),
                    None => {
                        let (BoolExpr::Texts(_, a, b)
                        | BoolExpr::Contains(a, b)
                        | BoolExpr::StartsWith(a, b)) = expr
                        else {
                            return None;
                        };
                        Some(self.str(a)? | self.str(b)?)
                    }
                }
            }
            BoolExpr::SetNumber(cmp, set, b) => match constant(b) {
                Some(number) => self.used(set, Use::Test, Some(ValueTest::Number(*cmp, number))),
                None => Some(self.used(set, against_number(*cmp), None)? | self.num(b)?),
            },
            BoolExpr::SetText(unequal, set, StrExpr::Const(text)) => {
                let test =
                    if *unequal { ValueTest::Differs(text) } else { ValueTest::Equals(text) };
                self.used(set, Use::Test, Some(test))
            }
            BoolExpr::SetText(unequal, set, b) => {
                let used = if *unequal { Use::Single } else { Use::Values };
                Some(self.used(set, used, None)? | self.str(b)?)
            }
            BoolExpr::Sets(Cmp::Eq, a, b) if self.shared.get(expr).is_some() => {
                self.program.shared.extend(self.shared.get(expr));
                let leaf = Use::Shared(self.program.shared.len() as u32 - 1);
                Some(
                    self.used_by(a, Use::Values, leaf, None)?
                        | self.used_by(b, Use::Values, leaf, None)?,
                )
            }
            BoolExpr::Sets(cmp, a, b) => {
                let (of_a, of_b) = compared(*cmp);
                Some(self.used(a, of_a, None)? | self.used(b, of_b, None)?)
            }
            BoolExpr::Lang(a) => Some(self.str(a)? | self.language()?),
        }
    }

    /// An operator that means the same for all nodes of a document.
    fn condition(&mut self, expr: &'a BoolExpr) -> Option<Env> {
        self.is_inside = false;
        let mask = self.bool(expr);
        self.is_inside = true;
        let mask = mask?;
        let func = self.func(Op::Any, Kind::Condition(expr), mask);
        let up = self.atom(Op::Any, Way::Document, func, mask)?;
        self.program.enter_condition(expr, up);
        Some(self.program.func(up).mask)
    }

    /// An operator of a predicate.
    pub(super) fn predicate(&mut self, expr: &'a BoolExpr) -> Option<Env> {
        let outer = std::mem::replace(&mut self.is_inside, true);
        let mask = self.bool(expr);
        self.is_inside = outer;
        mask
    }

    pub fn num(&mut self, expr: &'a NumExpr) -> Option<Env> {
        match expr {
            NumExpr::Const(_) | NumExpr::Position | NumExpr::Last => Some(0),
            NumExpr::Arith(_, a, b) => Some(self.num(a)? | self.num(b)?),
            NumExpr::Neg(a) | NumExpr::Round(_, a) => self.num(a),
            NumExpr::Count(set) => self.used(set, Use::Count, None),
            NumExpr::Sum(set) => self.used(set, Use::Sum, None),
            NumExpr::Text(a) | NumExpr::Length(a) => match (expr, &**a) {
                (NumExpr::Text(_), StrExpr::First(set)) => self.used(set, Use::Number, None),
                (_, StrExpr::First(set)) => self.used(set, Use::Length, None),
                _ => self.str(a),
            },
            NumExpr::Bool(a) => self.bool(a),
        }
    }

    pub fn str(&mut self, expr: &'a StrExpr) -> Option<Env> {
        match expr {
            StrExpr::Const(_) => Some(0),
            StrExpr::First(set) => self.used(set, Use::First, None),
            StrExpr::Name(kind, set) => self.used(set, Use::Name(*kind), None),
            StrExpr::Number(a) => self.num(a),
            StrExpr::Bool(a) => self.bool(a),
            StrExpr::Concat(parts) => {
                parts.iter().try_fold(0, |mask, part| Some(mask | self.str(part)?))
            }
            StrExpr::Before(a, b) | StrExpr::After(a, b) => Some(self.str(a)? | self.str(b)?),
            StrExpr::Substring(a, from, length) => {
                let mut mask = self.str(a)? | self.num(from)?;
                if let Some(length) = length {
                    mask |= self.num(length)?;
                }
                Some(mask)
            }
            StrExpr::Normalize(a) => self.str(a),
            StrExpr::Translate(a, b, c) => Some(self.str(a)? | self.str(b)? | self.str(c)?),
        }
    }

    fn used(&mut self, set: &'a NodeSet, used: Use, test: Option<ValueTest<'a>>) -> Option<Env> {
        self.used_by(set, used, used, test)
    }

    /// As `used`, with another function of each node.
    fn used_by(
        &mut self,
        set: &'a NodeSet,
        used: Use,
        leaf: Use,
        test: Option<ValueTest<'a>>,
    ) -> Option<Env> {
        let leaf = self.func(leaf.op(), Kind::Leaf(leaf, test), 0);
        let func = self.set(set, leaf)?;
        self.program.enter(set, used, func);
        Some(self.program.func(func).mask)
    }

    pub(super) fn func(&mut self, op: Op, kind: Kind<'a>, mask: Env) -> FuncId {
        let id = self.program.funcs.len() as FuncId;
        let leaves = self.program.may_be_leaves(&kind);
        self.program.funcs.push(Func { op, kind, mask, below: 0, id, leaves });
        id
    }

    pub(super) fn both(&mut self, op: Op, a: FuncId, b: FuncId) -> FuncId {
        let mask = self.program.func(a).mask | self.program.func(b).mask;
        self.func(op, Kind::Both(a, b), mask)
    }

    /// A function of what is directly below a node; `mask` is what it needs there.
    pub(super) fn downward(&mut self, op: Op, kind: Kind<'a>, mask: Env) -> FuncId {
        let below = self.program.with_siblings(mask);
        let id = self.func(op, kind, self.program.above(mask));
        self.program.funcs[id as usize].below = below;
        id
    }

    pub(super) fn subtree(&mut self, op: Op, each: FuncId) -> FuncId {
        let mask = self.lasting(self.program.func(each).mask);
        let below = self.program.with_siblings(mask);
        let id = self.func(op, Kind::Subtree(each), mask);
        self.program.funcs[id as usize].below = below;
        id
    }

    /// The fields that all levels below need.
    pub(super) fn lasting(&self, mut mask: Env) -> Env {
        loop {
            let more = mask | self.program.above(mask);
            if more == mask {
                return mask;
            }
            mask = more;
        }
    }

    pub(super) fn of_document(&mut self, func: FuncId) -> Option<FuncId> {
        let Func { op, mask, .. } = *self.program.func(func);
        self.atom(op, Way::Document, func, mask)
    }

    fn language(&mut self) -> Option<Env> {
        if self.program.language.is_none() {
            let leaf = self.func(Op::First, Kind::Leaf(Use::First, None), 0);
            self.atom(Op::First, Way::Language, leaf, 0)?;
            self.program.language = Some(self.program.atoms.len() - 1);
        }
        self.program.language.map(|atom| self.program.atoms[atom].bits)
    }

    /// A function that reads a new field, for which `mask` is needed where `of` is asked.
    pub(super) fn atom(&mut self, op: Op, way: Way<'a>, of: FuncId, mask: Env) -> Option<FuncId> {
        let width = if op == Op::Any { 1 } else { WIDE };
        let shift = self.bits;
        self.bits += width;
        (self.bits <= Env::BITS).then_some(())?;
        let bits = ((1 << width) - 1) << shift;
        let (above, beside) = match way {
            Way::Document | Way::Language => (bits, 0),
            Way::Parent => (mask, 0),
            Way::Ancestor => (bits | mask, 0),
            Way::Following | Way::Preceding => (bits | self.program.above(mask), mask),
            Way::FollowingSibling | Way::PrecedingSibling | Way::Sibling(_) => {
                (self.program.above(mask), mask)
            }
            // The function is asked of the parent, the predicates of the children.
            Way::Listed(_) => (mask | self.program.above(mask), mask),
        };
        let beside = self.program.with_siblings(beside);
        self.program.atoms.push(Atom { op, way, of, shift, bits, above, beside });
        Some(self.func(op, Kind::Up(self.program.atoms.len() - 1), bits))
    }
}

/// The set whose first node an operator tests against a text that does not depend on anything.
pub fn first_test(expr: &BoolExpr) -> Option<(&NodeSet, ValueTest<'_>)> {
    match expr {
        BoolExpr::Texts(_, StrExpr::First(set), StrExpr::Const(text)) => {
            Some((set, ValueTest::Equals(text)))
        }
        BoolExpr::Contains(StrExpr::First(set), StrExpr::Const(text)) => {
            Some((set, ValueTest::Contains(text)))
        }
        BoolExpr::StartsWith(StrExpr::First(set), StrExpr::Const(text)) => {
            Some((set, ValueTest::StartsWith(text)))
        }
        _ => None,
    }
}

/// What decides whether any pair of two sets compares so.
pub fn compared(cmp: Cmp) -> (Use, Use) {
    match cmp {
        Cmp::Eq => (Use::Values, Use::Values),
        Cmp::Ne => (Use::Single, Use::Single),
        Cmp::Lt | Cmp::Le => (Use::Min, Use::Max),
        Cmp::Gt | Cmp::Ge => (Use::Max, Use::Min),
    }
}

/// What decides whether any node of a set compares so with a number.
pub fn against_number(cmp: Cmp) -> Use {
    if cmp.is_equality() { Use::Values } else { compared(cmp).0 }
}
