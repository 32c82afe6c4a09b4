//! The operators of a compiled expression. Every conversion of the recommendation is explicit.

use super::parts::Part;
use crate::xml::chars::is_space;

/// A comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Cmp {
    /// Compares as IEEE 754 does.
    #[inline]
    pub fn numbers(self, a: f64, b: f64) -> bool {
        match self {
            Cmp::Eq => a == b,
            Cmp::Ne => a != b,
            Cmp::Lt => a < b,
            Cmp::Le => a <= b,
            Cmp::Gt => a > b,
            Cmp::Ge => a >= b,
        }
    }

    /// The comparison with its sides exchanged.
    pub fn flipped(self) -> Self {
        match self {
            Cmp::Lt => Cmp::Gt,
            Cmp::Le => Cmp::Ge,
            Cmp::Gt => Cmp::Lt,
            Cmp::Ge => Cmp::Le,
            same => same,
        }
    }

    /// Whether it is `=` or `!=`.
    pub fn is_equality(self) -> bool {
        matches!(self, Cmp::Eq | Cmp::Ne)
    }
}

/// An operator that gives a boolean.
#[derive(Debug, Clone, PartialEq)]
pub enum BoolExpr {
    /// `true()`, `false()`.
    Const(bool),
    /// `and`.
    And(Box<BoolExpr>, Box<BoolExpr>),
    /// `or`.
    Or(Box<BoolExpr>, Box<BoolExpr>),
    /// `not()`.
    Not(Box<BoolExpr>),
    /// Whether a node-set has a node.
    Exists(NodeSet),
    /// A number as a boolean.
    Number(NumExpr),
    /// A string as a boolean.
    Text(StrExpr),
    /// Two numbers.
    Numbers(Cmp, NumExpr, NumExpr),
    /// Two strings: `=`, or `!=` when the flag is set.
    Texts(bool, StrExpr, StrExpr),
    /// Whether any node's number compares so.
    SetNumber(Cmp, NodeSet, NumExpr),
    /// Whether any node's string-value is equal, or unequal when the flag is set.
    SetText(bool, NodeSet, StrExpr),
    /// Whether any pair of nodes compares so.
    Sets(Cmp, NodeSet, NodeSet),
    /// `contains()`.
    Contains(StrExpr, StrExpr),
    /// `starts-with()`.
    StartsWith(StrExpr, StrExpr),
    /// `lang()`.
    Lang(StrExpr),
}

/// Arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Arith {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
}

impl Arith {
    /// Computes as C does, which is as the recommendation says.
    #[inline]
    pub fn apply(self, a: f64, b: f64) -> f64 {
        match self {
            Arith::Add => a + b,
            Arith::Sub => a - b,
            Arith::Mul => a * b,
            Arith::Div => a / b,
            Arith::Mod => a % b,
        }
    }
}

/// A rounding function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Rounding {
    Floor,
    Ceiling,
    Round,
}

/// An operator that gives a number.
#[derive(Debug, Clone, PartialEq)]
pub enum NumExpr {
    /// A literal.
    Const(f64),
    /// `position()`.
    Position,
    /// `last()`.
    Last,
    /// A binary operator.
    Arith(Arith, Box<NumExpr>, Box<NumExpr>),
    /// Unary minus.
    Neg(Box<NumExpr>),
    /// `count()`.
    Count(NodeSet),
    /// `sum()`.
    Sum(NodeSet),
    /// A string as a number.
    Text(Box<StrExpr>),
    /// A boolean as a number.
    Bool(Box<BoolExpr>),
    /// `string-length()`.
    Length(Box<StrExpr>),
    /// `floor()`, `ceiling()`, `round()`.
    Round(Rounding, Box<NumExpr>),
}

/// Which name of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum NameKind {
    Local,
    Qualified,
    Uri,
}

/// An operator that gives a string.
#[derive(Debug, Clone, PartialEq)]
pub enum StrExpr {
    /// A literal.
    Const(String),
    /// The string-value of the first node, or nothing.
    First(NodeSet),
    /// A number as a string.
    Number(Box<NumExpr>),
    /// A boolean as a string.
    Bool(Box<BoolExpr>),
    /// `concat()`.
    Concat(Vec<StrExpr>),
    /// `substring-before()`.
    Before(Box<StrExpr>, Box<StrExpr>),
    /// `substring-after()`.
    After(Box<StrExpr>, Box<StrExpr>),
    /// `substring()`.
    Substring(Box<StrExpr>, Box<NumExpr>, Option<Box<NumExpr>>),
    /// `normalize-space()`.
    Normalize(Box<StrExpr>),
    /// `translate()`.
    Translate(Box<StrExpr>, Box<StrExpr>, Box<StrExpr>),
    /// `local-name()`, `name()`, `namespace-uri()` of the first node.
    Name(NameKind, NodeSet),
}

/// An axis. The namespace axis is left to lxml.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Axis {
    Ancestor,
    AncestorOrSelf,
    Attribute,
    Child,
    Descendant,
    DescendantOrSelf,
    Following,
    FollowingSibling,
    Parent,
    Preceding,
    PrecedingSibling,
    SelfNode,
}

impl Axis {
    /// Whether positions count backwards along it.
    pub fn is_reverse(self) -> bool {
        use Axis::*;
        matches!(self, Ancestor | AncestorOrSelf | Parent | Preceding | PrecedingSibling)
    }

    /// Whether it leads only to the node itself and into its subtree.
    pub fn is_downward(self) -> bool {
        use Axis::*;
        matches!(self, Attribute | Child | Descendant | DescendantOrSelf | SelfNode)
    }
}

/// A node test. Name tests apply to the principal node type of the axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    /// `node()`.
    Node,
    /// `text()`.
    Text,
    /// `comment()`.
    Comment,
    /// `processing-instruction()`, with a target or without.
    Instruction(Option<String>),
    /// `*`.
    Any,
    /// `prefix:*`: a number in the expression's table of names, of which only the URI counts.
    AnyIn(usize),
    /// A name: a number in the expression's table of names.
    Name(usize),
}

/// A location step.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Where to go.
    pub axis: Axis,
    /// What to keep.
    pub test: Test,
    /// Predicates, with numbers already compared to the position.
    pub predicates: Vec<BoolExpr>,
    /// Whether any predicate asks for its position.
    pub positional: bool,
}

impl Step {
    /// A step of any kind.
    pub fn new(axis: Axis, test: Test, predicates: Vec<BoolExpr>) -> Self {
        let positional = predicates.iter().any(BoolExpr::is_positional);
        Step { axis, test, predicates, positional }
    }

    /// A step that takes every node of an axis.
    pub fn all(axis: Axis) -> Self {
        Step::new(axis, Test::Node, Vec::new())
    }

    /// Whether it is `descendant-or-self::node()`, the first half of `//`.
    pub fn is_slashes(&self) -> bool {
        self.axis == Axis::DescendantOrSelf && self.test == Test::Node && self.predicates.is_empty()
    }
}

/// A name that an expression tests for: the namespace name ("" for none) and the local part, which
/// is none where any will do.
pub type Wanted = (String, Option<String>);

/// Where a path begins.
#[derive(Debug, Clone, PartialEq)]
pub enum Start {
    /// At the document.
    Root,
    /// At the context node.
    Context,
    /// At each node of a set.
    Set(Box<NodeSet>),
}

/// An operator that gives a node-set.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeSet {
    /// A location path.
    Path(Start, Vec<Step>),
    /// A set filtered by a predicate; positions count in document order.
    Filter(Box<NodeSet>, Box<BoolExpr>),
    /// `|`.
    Union(Box<NodeSet>, Box<NodeSet>),
}

impl NodeSet {
    /// The context node alone.
    pub fn context() -> Self {
        NodeSet::Path(Start::Context, vec![Step::all(Axis::SelfNode)])
    }
}

impl BoolExpr {
    /// Whether it asks for the position or the size of its own context.
    pub fn is_positional(&self) -> bool {
        Part::Bool(self).is_positional()
    }
}

/// Strips the white space of XML from both ends.
pub(crate) fn trim(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_ascii() && is_space(c as u8))
}
