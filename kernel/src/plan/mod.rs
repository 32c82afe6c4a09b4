//! Expressions over a whole partition.

use crate::budget::Budget;
use crate::error::BudgetExceeded;
use crate::eval::Evaluator;
use crate::image::PartitionImage;
use crate::interp::{Interpreter, outermost};
use crate::tree::Tree;
use crate::xpath::Expression;
use crate::xpath::bound::bind;

/// A bitmap of slots: bit `n % 8`, least significant first, of byte `n / 8`.
pub type Bitmap = Vec<u8>;

/// Evaluates an expression on the occupied slots of an image, or on those of them in `slots`.
/// The bitmap is as long as the image's slots need.
pub fn evaluate(
    image: &PartitionImage,
    expression: &Expression,
    slots: Option<&[u8]>,
    budget: &Budget,
) -> Result<Bitmap, BudgetExceeded> {
    let store = image.store();
    let names = bind(expression.wanted(), store);
    let mut members = vec![0; image.slot_count().div_ceil(8)];
    let mut tree = Tree::default();
    for (slot, document) in image.slots() {
        let (byte, bit) = (slot as usize / 8, 1 << (slot % 8));
        if slots.is_some_and(|slots| slots.get(byte).is_none_or(|byte| byte & bit == 0)) {
            continue;
        }
        tree.expand(store, document);
        let interpreter = Interpreter { store, names: &names, tree: &tree, budget };
        if interpreter.bool(expression.root(), outermost(&tree))? {
            members[byte] |= bit;
        }
    }
    Ok(members)
}
