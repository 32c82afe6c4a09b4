//! What the integration tests share.
#![allow(dead_code, missing_docs)]

use std::collections::HashMap;

use tagmill_kernel::budget::Budget;
use tagmill_kernel::image::PartitionImage;
use tagmill_kernel::plan::evaluate;
use tagmill_kernel::xpath::Expression;

pub const LSHW: &str = include_str!("../data/lshw.xml");

pub fn image(documents: &[&str]) -> PartitionImage {
    let mut image = PartitionImage::new();
    for (slot, document) in documents.iter().enumerate() {
        image.put(slot as u32, &[("lshw", document.as_bytes())]).expect("a good document");
    }
    image
}

pub fn expression(text: &str) -> Expression {
    Expression::new(text, &HashMap::new()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The verdict on each of up to eight documents, as a bitmap.
pub fn verdicts(image: &PartitionImage, text: &str) -> u8 {
    let members = evaluate(image, &expression(text), None, &Budget::new(u64::MAX));
    members.expect("the budget is unlimited")[0]
}

pub fn holds(document: &str, text: &str) -> bool {
    verdicts(&image(&[document]), text) == 1
}
