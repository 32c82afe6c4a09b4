//! What an expression is compiled to: functions of a node, and what of its surroundings they see.

use std::rc::Rc;

use hashbrown::HashMap;

use super::numbered::Numbering;
use super::values::Op;
use crate::plan::anchors::ValueTest;
use crate::plan::shared::Shared;
use crate::xpath::ir::{BoolExpr, NameKind, NodeSet, Step};

/// The number of a [`Func`].
pub type FuncId = u32;
/// What the surroundings of a node come to: a field of bits for each [`Atom`].
pub type Env = u128;

/// What is asked of the nodes of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Use {
    Exists,
    Count,
    Sum,
    First,
    /// The characters of the first node's string-value: one above the code of the number.
    Length,
    /// Its number.
    Number,
    Name(NameKind),
    Values,
    /// The values that both sides of a comparison can have, by its number.
    Shared(u32),
    Single,
    Min,
    Max,
    /// Whether any string-value passes the test of the operator.
    Test,
    /// Whether the first node's string-value passes it: 2, or 1 for a node that does not.
    FirstTest,
}

impl Use {
    pub fn op(self) -> Op {
        match self {
            Use::Exists | Use::Test => Op::Any,
            Use::Count | Use::Sum => Op::Add,
            Use::First | Use::Length | Use::Number | Use::Name(_) | Use::FirstTest => Op::First,
            Use::Values | Use::Shared(_) => Op::Set,
            Use::Single => Op::Single,
            Use::Min => Op::Min,
            Use::Max => Op::Max,
        }
    }
}

/// A set of a document's nodes.
#[derive(Debug, Clone, Copy)]
pub struct Chosen {
    /// Whether a node is a member.
    pub member: FuncId,
    /// How many members are in a subtree.
    pub amount: FuncId,
}

/// What a function of a node is.
#[derive(Debug, Clone, Copy)]
pub enum Kind<'a> {
    /// What is asked of the nodes of a set.
    Leaf(Use, Option<ValueTest<'a>>),
    /// Another function, where a step's test and predicates hold.
    Pass(&'a Step, FuncId),
    /// Another function, where a predicate holds.
    Holds(&'a BoolExpr, FuncId),
    /// Whether an operator that has no context holds of the document.
    Condition(&'a BoolExpr),
    /// The second function, where the first is true.
    Where(FuncId, FuncId),
    /// Another function, except of attributes.
    Inner(FuncId),
    /// Whether the node is the document.
    Document,
    /// Whether it is neither the document nor an attribute.
    Inside,
    /// Whether it is no attribute.
    Tree,
    /// A function of all children.
    Children(FuncId),
    /// A function of all attributes.
    Attributes(FuncId),
    /// A function of the node and all its descendants.
    Subtree(FuncId),
    /// A function of the children or attributes that a step with positions leaves.
    Listed(&'a Step, FuncId),
    /// Two functions of one node.
    Both(FuncId, FuncId),
    /// A field of the surroundings.
    Up(usize),
    /// A function of the members of a set that a predicate with positions leaves.
    Selected(Chosen, &'a BoolExpr, FuncId),
    /// The list of one node, by the number of its [`Numbering`].
    Entry(usize),
    /// A function of the nodes that predicates leave of a list.
    Numbered(usize),
}

/// A function of a node and its surroundings.
#[derive(Debug, Clone, Copy)]
pub struct Func<'a> {
    pub op: Op,
    pub kind: Kind<'a>,
    /// The part of the surroundings that it depends on.
    pub mask: Env,
    /// The fields that nodes below must have for it.
    pub below: Env,
    pub id: FuncId,
    /// Whether it may find something in a text, a comment or an instruction.
    pub leaves: bool,
}

/// How a field follows from what is around a node.
#[derive(Debug, Clone, Copy)]
pub enum Way<'a> {
    /// The function's result for the document.
    Document,
    Parent,
    /// The results for all ancestors.
    Ancestor,
    Following,
    FollowingSibling,
    Preceding,
    PrecedingSibling,
    /// The results for the siblings that a step with positions leaves.
    Sibling(&'a Step),
    /// Whether a step with positions leads from the parent to the node, if the parent has the
    /// function.
    Listed(&'a Step),
    /// The nearest `xml:lang`.
    Language,
}

/// A field of the surroundings.
#[derive(Debug, Clone, Copy)]
pub struct Atom<'a> {
    pub op: Op,
    pub way: Way<'a>,
    pub of: FuncId,
    pub shift: u32,
    pub bits: Env,
    /// What it depends on of the parent's surroundings.
    pub above: Env,
    /// The fields of siblings that it depends on.
    pub beside: Env,
}

impl Atom<'_> {
    /// Whether siblings differ in it.
    pub fn is_sideways(&self) -> bool {
        use Way::{Following, FollowingSibling, Listed, Preceding, PrecedingSibling, Sibling};
        matches!(
            self.way,
            Following | FollowingSibling | Preceding | PrecedingSibling | Sibling(_) | Listed(_)
        )
    }
}

/// A compiled expression.
#[derive(Debug, Default)]
pub struct Program<'a> {
    pub funcs: Vec<Func<'a>>,
    pub atoms: Vec<Atom<'a>>,
    pub numberings: Vec<Numbering<'a>>,
    entries: HashMap<(usize, Use), FuncId>,
    conditions: HashMap<usize, FuncId>,
    /// What comparisons of sets can have in common.
    pub shared: Vec<Rc<Shared<'a>>>,
    pub language: Option<usize>,
    /// Whether it looks at what precedes: libxml2 leaves out a first child of the document.
    pub precedes: bool,
}

impl<'a> Program<'a> {
    /// The function for what is asked of a set.
    pub fn entry(&self, set: &NodeSet, used: Use) -> FuncId {
        self.entries[&(std::ptr::from_ref(set) as usize, used)]
    }

    pub fn enter(&mut self, set: &NodeSet, used: Use, func: FuncId) {
        self.entries.insert((std::ptr::from_ref(set) as usize, used), func);
    }

    /// The function that says whether an operator holds of the document, if it means the same for all
    /// nodes.
    #[inline]
    pub fn condition(&self, expr: &BoolExpr) -> Option<FuncId> {
        if self.conditions.is_empty() {
            return None;
        }
        self.conditions.get(&(std::ptr::from_ref(expr) as usize)).copied()
    }

    pub fn enter_condition(&mut self, expr: &BoolExpr, func: FuncId) {
        self.conditions.insert(std::ptr::from_ref(expr) as usize, func);
    }

    pub fn func(&self, id: FuncId) -> &Func<'a> {
        &self.funcs[id as usize]
    }

    /// What a field for a node below depends on of this node's surroundings.
    pub fn above(&self, mask: Env) -> Env {
        let used = self.atoms.iter().filter(|atom| atom.bits & mask != 0);
        used.fold(0, |all, atom| all | atom.above)
    }

    /// A mask with the fields of siblings that it depends on.
    pub fn with_siblings(&self, mut mask: Env) -> Env {
        for atom in self.atoms.iter().rev().filter(|atom| atom.is_sideways()) {
            if atom.bits & mask != 0 {
                mask |= atom.beside;
            }
        }
        mask
    }
}
