//! Results as numbers of 32 bits, so that they fit into tables and contexts.

use std::borrow::Cow;
use std::rc::Rc;

use hashbrown::HashMap;

use super::lists::{Lists, is_full};
use crate::plan::local::Item;
use crate::plan::texts::Fingerprint;
use crate::xpath::number;

/// A result. Zero is what an operator gives for no node at all.
pub type Value = u32;

/// How the results of several nodes become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Whether any is true: 0 or 1.
    Any,
    /// What they add up to: the code of a number.
    Add,
    /// The first in document order: one above the code of a string.
    First,
    /// All of them: the code of a set of strings.
    Set,
    /// None; or 1 for several; or two above the code of the only string there is.
    Single,
    /// The least number: one above its code. What is not a number does not count.
    Min,
    /// The greatest.
    Max,
    /// All nodes: the code of a list.
    List,
    /// The first of them, at most so many.
    Front(u8),
    /// The last of them.
    Back(u8),
}

impl Op {
    /// Whether a node that is met twice, or too early, makes no difference.
    pub fn is_idempotent(self) -> bool {
        !self.is_ordered() && self != Op::Add
    }

    /// Whether the order of the nodes matters.
    pub fn is_ordered(self) -> bool {
        matches!(self, Op::First | Op::List | Op::Front(_) | Op::Back(_))
    }

    /// Whether nothing that follows can change a result.
    #[inline]
    pub fn is_final(self, value: Value) -> bool {
        match self {
            Op::Any | Op::First => value != 0,
            Op::Single => value == 1,
            Op::Front(_) => is_full(value),
            _ => false,
        }
    }
}

/// Integers up to here add up to the same double in any order.
const EXACT: f64 = 9_007_199_254_740_992.0;
/// Integers below this are their own code.
const SMALL: f64 = 4_194_304.0;
/// The code of a sum that depends on the order of its addition.
pub const INEXACT: Value = 1;
/// The code of what is not a number.
pub const NAN: Value = 3;

/// A string, or the node whose string-value it is.
#[derive(Debug, Clone)]
pub enum Stored<'a> {
    Text(Cow<'a, str>),
    Node(Item),
}

/// The strings, numbers and sets of one evaluation.
#[derive(Debug)]
pub struct Values<'a> {
    strings: Vec<Stored<'a>>,
    node_codes: HashMap<Item, Value>,
    /// Long strings by what tells them apart.
    long_codes: HashMap<Fingerprint, Vec<Value>>,
    string_codes: HashMap<Cow<'a, str>, Value>,
    numbers: Vec<f64>,
    number_codes: HashMap<u64, Value>,
    sets: Vec<Rc<[Value]>>,
    set_codes: HashMap<Rc<[Value]>, Value>,
    unions: HashMap<(Value, Value), Value>,
    pub lists: Lists,
}

impl Default for Values<'_> {
    fn default() -> Self {
        Values {
            strings: Vec::new(),
            node_codes: HashMap::new(),
            long_codes: HashMap::new(),
            string_codes: HashMap::new(),
            // The first two are INEXACT and NAN.
            numbers: vec![f64::NAN, f64::NAN],
            number_codes: HashMap::new(),
            sets: Vec::new(),
            set_codes: HashMap::new(),
            unions: HashMap::new(),
            lists: Lists::default(),
        }
    }
}

impl<'a> Values<'a> {
    pub fn string_code(&mut self, text: Cow<'a, str>) -> Value {
        if let Some(&code) = self.string_codes.get(&*text) {
            return code;
        }
        let code = self.strings.len() as Value;
        self.strings.push(Stored::Text(text.clone()));
        self.string_codes.insert(text, code);
        code
    }

    /// A string that is built when somebody reads it; two of them may be equal.
    pub fn node_code(&mut self, item: Item) -> Value {
        let strings = &mut self.strings;
        *self.node_codes.entry(item).or_insert_with(|| {
            strings.push(Stored::Node(item));
            strings.len() as Value - 1
        })
    }

    /// The codes of long strings with a fingerprint.
    pub fn long_codes(&self, fingerprint: Fingerprint) -> Vec<Value> {
        self.long_codes.get(&fingerprint).cloned().unwrap_or_default()
    }

    /// A new long string, which is kept as a node.
    pub fn add_long(&mut self, fingerprint: Fingerprint, item: Item) -> Value {
        let code = self.strings.len() as Value;
        self.strings.push(Stored::Node(item));
        self.long_codes.entry(fingerprint).or_default().push(code);
        code
    }

    pub fn stored(&self, code: Value) -> Stored<'a> {
        self.strings[code as usize].clone()
    }

    /// A string that was stored as such.
    pub fn string(&self, code: Value) -> Cow<'a, str> {
        match &self.strings[code as usize] {
            Stored::Text(text) => text.clone(),
            Stored::Node(_) => Cow::Borrowed(""),
        }
    }

    pub fn number_code(&mut self, number: f64) -> Value {
        if (0.0..SMALL).contains(&number) && number.fract() == 0.0 {
            return (number as Value) << 1;
        }
        if number.is_nan() {
            return NAN;
        }
        let numbers = &mut self.numbers;
        *self.number_codes.entry(number.to_bits()).or_insert_with(|| {
            numbers.push(number);
            (numbers.len() as Value - 1) << 1 | 1
        })
    }

    pub fn number(&self, code: Value) -> f64 {
        match code & 1 {
            0 => f64::from(code >> 1),
            _ => self.numbers[code as usize >> 1],
        }
    }

    /// The result of an only string.
    pub fn only(&mut self, op: Op, text: Cow<'a, str>) -> Value {
        match op {
            Op::Any => 1,
            Op::First | Op::Single | Op::Set => {
                let code = self.string_code(text);
                self.only_code(op, code)
            }
            Op::Add | Op::Min | Op::Max => self.only_number(op, number::parse(&text)),
            // A list has nodes.
            Op::List | Op::Front(_) | Op::Back(_) => 0,
        }
    }

    /// The result of an only string, by its code.
    pub fn only_code(&mut self, op: Op, code: Value) -> Value {
        match op {
            Op::First => 1 + code,
            Op::Single => 2 + code,
            _ => self.set_code(&[code]),
        }
    }

    /// The result of an only number.
    pub fn only_number(&mut self, op: Op, number: f64) -> Value {
        match op {
            Op::Add => self.sum_code(number),
            Op::Min | Op::Max if number.is_nan() => 0,
            _ => 1 + self.number_code(number),
        }
    }

    /// Several sets as one, and how many members were looked at.
    pub fn union_of(&mut self, mut codes: Vec<Value>) -> (Value, usize) {
        codes.sort_unstable();
        codes.dedup();
        codes.retain(|&code| code != 0);
        if codes.len() < 2 {
            return (codes.first().copied().unwrap_or(0), 0);
        }
        let mut all = Vec::new();
        for code in codes {
            all.extend_from_slice(&self.sets[code as usize - 1]);
        }
        let looked_at = all.len();
        all.sort_unstable();
        all.dedup();
        (self.set_code(&all), looked_at)
    }

    /// The code of a sum or of what is added up.
    pub fn sum_code(&mut self, number: f64) -> Value {
        if is_exact(number) { self.number_code(number) } else { INEXACT }
    }

    /// Two results as one, in document order.
    #[inline]
    pub fn join(&mut self, op: Op, a: Value, b: Value) -> Value {
        if a == 0 {
            return b;
        }
        if b == 0 {
            return a;
        }
        match op {
            Op::Any => a | b,
            Op::First => a,
            Op::Single => {
                if a == b {
                    a
                } else {
                    1
                }
            }
            Op::Add => {
                if a == NAN || b == NAN {
                    return NAN;
                }
                if a == INEXACT || b == INEXACT {
                    return INEXACT;
                }
                self.sum_code(self.number(a) + self.number(b))
            }
            Op::Min | Op::Max => {
                let (x, y) = (self.number(a - 1), self.number(b - 1));
                if (x <= y) == (op == Op::Min) { a } else { b }
            }
            Op::Set => self.union(a, b),
            Op::List | Op::Front(_) | Op::Back(_) => self.lists.join(op, a, b),
        }
    }

    fn union(&mut self, a: Value, b: Value) -> Value {
        if a == b {
            return a;
        }
        if let Some(&known) = self.unions.get(&(a, b)) {
            return known;
        }
        let (x, y) = (self.set(a), self.set(b));
        let mut both = Vec::with_capacity(x.len() + y.len());
        both.extend_from_slice(&x);
        both.extend_from_slice(&y);
        both.sort_unstable();
        both.dedup();
        let code = self.set_code(&both);
        self.unions.insert((a, b), code);
        code
    }

    fn set_code(&mut self, sorted: &[Value]) -> Value {
        if let Some(&code) = self.set_codes.get(sorted) {
            return code;
        }
        let set: Rc<[Value]> = sorted.into();
        self.sets.push(Rc::clone(&set));
        let code = self.sets.len() as Value;
        self.set_codes.insert(set, code);
        code
    }

    /// The codes of a set's strings, ascending.
    pub fn set(&self, code: Value) -> Rc<[Value]> {
        match code {
            0 => Rc::from([]),
            _ => Rc::clone(&self.sets[code as usize - 1]),
        }
    }
}

/// Whether a number adds up to the same in any order.
fn is_exact(number: f64) -> bool {
    number.is_nan() || (0.0..EXACT).contains(&number) && number.fract() == 0.0
}
