//! The budget bounds the time of every evaluation, and ordinary ones stay far below it.
#![allow(missing_docs)]

mod common;

use common::{LSHW, expression, image};
use tagmill_kernel::budget::Budget;
use tagmill_kernel::eval::Evaluator;
use tagmill_kernel::image::PartitionImage;
use tagmill_kernel::interp::{Interpreter, outermost};
use tagmill_kernel::plan::evaluate;
use tagmill_kernel::tree::{Tree, Whole};
use tagmill_kernel::xpath::bound::bind;

/// A thousand elements that may each ask about whatever else is in the list.
fn list(attributes: &str, content: &str) -> PartitionImage {
    image(&[&format!("<list{attributes}>{content}{}</list>", "<x/>".repeat(1000))])
}

fn is_stopped(image: &PartitionImage, text: &str, steps: u64) -> bool {
    evaluate(image, &expression(text), None, &Budget::new(steps)).is_err()
}

/// As `is_stopped`, of the engine that keeps no results.
fn interpreter_is_stopped(image: &PartitionImage, text: &str, steps: u64) -> bool {
    let (expression, budget) = (expression(text), Budget::new(steps));
    let (store, names) = (image.store(), bind(expression.wanted(), image.store()));
    let mut tree = Tree::default();
    image.slots().any(|(_, document)| {
        let expanded = tree.expand(store, document, &Whole, &budget);
        let one = Interpreter { store, names: &names, tree: &tree, budget: &budget };
        expanded.and_then(|()| one.bool(expression.root(), outermost(&tree))).is_err()
    })
}

#[test]
fn reading_a_long_text_again_and_again_costs_its_length() {
    let digits = "9".repeat(10_000);
    let image = list(
        &format!(" long='{digits}'"),
        &format!("<b>{digits}</b><!--{digits}--><?p {digits}?><y/>"),
    );
    for text in [
        "//x[/list/b/text() < 5]",
        "//x[/list/b/text() = 5]",
        "//x[/list/b < 5]",
        "//x[../@long < 5]",
        "//x[../comment() < 5]",
        "//x[../processing-instruction() < 5]",
        "//x[sum(/list/b/text()) < 5]",
        "//x[../@long < ../y]",
        "//x[contains(../@long, 'a')]",
    ] {
        assert!(interpreter_is_stopped(&image, text, 300_000), "{text}");
        assert!(!interpreter_is_stopped(&image, text, 3_000_000), "{text}");
        // All elements are alike: it is read once or twice.
        assert!(is_stopped(&image, text, 600), "{text}");
        // A sum beyond the integers depends on the order, which only the interpreter keeps.
        assert!(is_stopped(&image, text, 20_000) == text.contains("sum"), "{text}");
    }
}

#[test]
fn attributes_that_stand_in_the_way_cost_steps() {
    let attributes: String = (0..10_000).map(|n| format!(" a{n}=''")).collect();
    let first = list(&attributes, "");
    let inside = list("", &format!("<b><c{attributes}/></b>"));
    // `@*` keeps them: attributes that no step asks for are left out.
    for (image, text) in [
        (&first, "//x[@* or /list/y]"),
        (&first, "//x[@* or /list//y]"),
        (&first, "//x[@* or /list/descendant-or-self::y]"),
        (&first, "//x[@* or ../y]"),
        (&first, "//x[@* or preceding-sibling::y]"),
        (&first, "//x[lang('en')]"),
        (&inside, "//x[@* or preceding::y or following::c]"),
        (&inside, "//x[@* or /list/b/c/../../b/descendant::y]"),
        (&inside, "//x[@* or /list/b/c/@a0/following::y]"),
    ] {
        assert!(interpreter_is_stopped(image, text, 1_000_000), "{text}");
        assert!(!is_stopped(image, text, 100_000), "{text}");
    }
}

#[test]
fn looking_through_the_values_of_an_attribute_costs_steps() {
    let values: String = (0..5_000).map(|n| format!("<x s='{n}'/>")).collect();
    let all = list("", &values);
    for test in ["[@s > 1]", "[@s != 'a']", "[contains(@s, 'a')]", "[@s]"] {
        let text = format!("//x[absent]{}", test.repeat(50));
        assert!(is_stopped(&all, &text, 200_000), "{text}");
    }
}

#[test]
fn the_length_of_an_expression_costs_steps() {
    let all = list("", "");
    let union = format!("count(//x{})", " | /list/..".repeat(400));
    let sum = format!("//x[0 = position(){}]", "+ 1".repeat(400));
    for text in [union, sum] {
        assert!(interpreter_is_stopped(&all, &text, 300_000), "{text}");
        assert!(is_stopped(&all, &text, 400), "{text}");
    }
    // Equal elements are looked at once.
    let different: String = (0..1000).map(|n| format!("<z s='{n}'/>")).collect();
    let alone = format!("//z[{}]", "./".repeat(400) + "y");
    assert!(interpreter_is_stopped(&list("", &different), &alone, 300_000), "{alone}");
    // Few documents are walked.
    assert!(is_stopped(&list("", &different), &alone, 10_000), "{alone}");
    let named = format!("//z[{}@s = 'x']", "self::*/".repeat(400));
    assert!(is_stopped(&list("", &different), &named, 300_000), "{named}");
}

#[test]
fn ordinary_expressions_take_a_small_part_of_their_budget() {
    // The worker allows 50,000 steps a document.
    let all = image(&[LSHW; 8]);
    for text in [
        "//node[@id='display']/vendor[contains(.,'NVIDIA')]",
        "//node[@class='processor']/vendor = 'QEMU'",
        "count(//node[@id='core']/node) > 3",
        "//node[@class='network' and position()=2]",
        "sum(//node[@class='memory']/size) > 1",
        "//capability[@id != 'pci'] or //setting[starts-with(@value, 'x')]",
        "//node/following-sibling::node[@class]",
        "normalize-space(//node[@class='system']/product) = 'x'",
    ] {
        assert!(!is_stopped(&all, text, 5_000), "{text}");
    }
}

#[test]
fn documents_that_an_expression_cannot_tell_apart_are_asked_once() {
    let machine = |n: usize| {
        let disks = "<node class='disk'><size>5</size></node>".repeat(50);
        format!("<list id='host-{n}'><serial>S{n}</serial><node class='bus'/>{disks}</list>")
    };
    let machines: Vec<String> = (0..200).map(machine).collect();
    let alike = image(&machines.iter().map(String::as_str).collect::<Vec<_>>());
    for text in [
        "//node[preceding-sibling::node/@class = 'bus' and following::node]",
        "count(//node[starts-with(@class, 'd')] | //node[size > 4]) = 50",
        "//node[@class = /list/node/@class][last()]",
        "count(//*[@class = 'disk']) = 50",
    ] {
        // One walk among the siblings of 50 takes 2,500 steps, and one for each machine 500,000.
        assert!(!is_stopped(&alike, text, 150_000), "{text}");
    }
    // What tells them apart is asked of each.
    assert!(is_stopped(&alike, "//node[preceding::serial != concat(/list/@id, 1)]", 5_000));
}
