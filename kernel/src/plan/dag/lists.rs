//! Lists of nodes in document order, as far as predicates with positions can tell them apart.

use std::rc::Rc;

use hashbrown::HashMap;

use super::Place;
use super::values::{Op, Value};

/// What is known of a node of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Entry {
    /// Which predicates it passes wherever it stands, by bits, and what the rest of the path gives.
    Known(u32, Value),
    /// The node: a predicate asks for its position and for something else.
    Node(Place),
}

/// A list, by the numbers of its entries, or of its parts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum List {
    Short(Rc<[u32]>),
    One(u32),
    Both(u32, u32),
}

/// The lists of one evaluation. The code of one is twice its number, and one more where nothing that is
/// added can change it.
#[derive(Debug, Default)]
pub struct Lists {
    entries: Vec<Entry>,
    entry_numbers: HashMap<Entry, u32>,
    lists: Vec<List>,
    numbers: HashMap<List, u32>,
}

impl Lists {
    /// The list of one node.
    pub fn of(&mut self, op: Op, entry: Entry) -> Value {
        let entries = &mut self.entries;
        let number = *self.entry_numbers.entry(entry).or_insert_with(|| {
            entries.push(entry);
            entries.len() as u32 - 1
        });
        match op {
            Op::Front(most) | Op::Back(most) => self.short(&[number], most),
            _ => self.code(List::One(number), false),
        }
    }

    /// Two lists as one, of which neither is empty.
    pub fn join(&mut self, op: Op, a: Value, b: Value) -> Value {
        match op {
            Op::Front(_) if is_full(a) => a,
            Op::Back(_) if is_full(b) => b,
            Op::Front(most) => {
                let mut all = self.numbers_of(a);
                all.extend(self.numbers_of(b));
                all.truncate(most as usize);
                self.short(&all, most)
            }
            Op::Back(most) => {
                let mut all = self.numbers_of(a);
                all.extend(self.numbers_of(b));
                let surplus = all.len().saturating_sub(most as usize);
                self.short(&all[surplus..], most)
            }
            _ => self.code(List::Both(number(a), number(b)), false),
        }
    }

    /// The nodes of a list.
    pub fn entries(&self, code: Value) -> Vec<Entry> {
        self.numbers_of(code).into_iter().map(|entry| self.entries[entry as usize]).collect()
    }

    fn numbers_of(&self, code: Value) -> Vec<u32> {
        let (mut all, mut open) = (Vec::new(), vec![number(code)]);
        while let Some(list) = open.pop() {
            match &self.lists[list as usize] {
                List::Short(entries) => all.extend_from_slice(entries),
                List::One(entry) => all.push(*entry),
                List::Both(a, b) => open.extend([*b, *a]),
            }
        }
        all
    }

    fn short(&mut self, entries: &[u32], most: u8) -> Value {
        self.code(List::Short(entries.into()), entries.len() == most as usize)
    }

    fn code(&mut self, list: List, is_full: bool) -> Value {
        let number = match self.numbers.get(&list) {
            Some(&number) => number,
            None => {
                self.lists.push(list.clone());
                let number = self.lists.len() as u32 - 1;
                self.numbers.insert(list, number);
                number
            }
        };
        (number + 1) << 1 | Value::from(is_full)
    }
}

fn number(code: Value) -> u32 {
    (code >> 1) - 1
}

/// Whether nothing that is added changes a list.
pub fn is_full(code: Value) -> bool {
    code & 1 == 1
}
