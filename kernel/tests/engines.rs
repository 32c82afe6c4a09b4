//! Every plan against the interpreter, on all documents at once and on each alone.
#![allow(missing_docs)]

mod common;

use common::{LSHW, expression, image, verdicts};
use tagmill_kernel::budget::Budget;
use tagmill_kernel::eval::Evaluator;
use tagmill_kernel::image::PartitionImage;
use tagmill_kernel::interp::{Interpreter, outermost};
use tagmill_kernel::plan::evaluate;
use tagmill_kernel::tree::{Tree, Whole};
use tagmill_kernel::xpath::bound::bind;

fn interpreted(image: &PartitionImage, text: &str) -> u8 {
    let (expression, budget) = (expression(text), Budget::new(u64::MAX));
    let names = bind(expression.wanted(), image.store());
    let mut tree = Tree::default();
    image.slots().fold(0, |members, (slot, document)| {
        tree.expand(image.store(), document, &Whole, &budget).expect("no bound");
        let one = Interpreter { store: image.store(), names: &names, tree: &tree, budget: &budget };
        let verdict = one.bool(expression.root(), outermost(&tree)).expect("no bound");
        members | u8::from(verdict) << slot
    })
}

const DOCUMENTS: [&str; 6] = [
    LSHW,
    "<node id='x'><node id='y'><size>1</size><v>b</v></node><size>2</size><v>a</v></node>",
    "<list><node id='y' class='c'><size>2</size></node><node id='x'/><!--c--></list>",
    "<list><a><a><b>1</b></a><b>2</b></a><a><b>3</b></a></list>",
    "<node><node><node><size/></node></node></node>",
    "<list/>",
];

#[test]
fn plans_agree_with_the_interpreter() {
    let paths = [
        "//node",
        "//node[@id='x']",
        "//node[@id='x']/size",
        "//node[size > 1]",
        "//a/b",
        "//a//b",
        "//node//node/size",
        "//node[2]",
        "//a[1]/b",
        "//@id",
        "//node/@id",
        "//*[@id]/*",
        "//size/text()",
        "/list/node[last()]",
        "/list//b[2]",
        "//node[@id='x' or @class]",
        "//node[starts-with(@id,'x')]",
        "//node[not(@id)]/size",
        "//a[a/b]",
        "//a[b = 2]/a/b",
        "//absent",
        "//node[@id='absent']/v",
        "//node[.//size]",
        "node",
        ".//b",
        "@id",
        "//b/..",
        "//b[. = '3']/ancestor::list",
        "//a | //b",
        "//v | //b[. = 3]",
        "//node/size | //v",
    ];
    let uses = [
        "PATH",
        "not(PATH)",
        "PATH = '1'",
        "PATH != '1'",
        "PATH > 1",
        "PATH = 'y'",
        "count(PATH) = 2",
        "count(PATH) > 0",
        "sum(PATH) = 3",
        "string(PATH) = '1'",
        "contains(PATH, 'y')",
        "starts-with(PATH, 'x')",
        "number(PATH) > 1",
        "string-length(PATH) = 1",
        "PATH = //size",
        "PATH and count(PATH) = 1",
        "PATH or //v",
        "name(PATH) = 'size'",
        "normalize-space(PATH) = '2'",
    ];
    let all = image(&DOCUMENTS);
    for path in paths {
        for used in uses {
            let text = used.replace("PATH", path);
            let expected = interpreted(&all, &text);
            assert_eq!(verdicts(&all, &text), expected, "{text}");
            for slot in 0..DOCUMENTS.len() {
                let (one, only) = (expression(&text), [1 << slot]);
                let members = evaluate(&all, &one, Some(&only), &Budget::new(u64::MAX));
                assert_eq!(members, Ok(vec![expected & only[0]]), "{text} in slot {slot}");
            }
        }
    }
}

#[test]
fn every_plan_is_bounded() {
    let all = image(&DOCUMENTS);
    for text in ["//node", "count(//node)", "string(//node)", "//node/..", "//node[2]", "//*//*//*"]
    {
        let stopped = evaluate(&all, &expression(text), None, &Budget::new(3));
        assert!(stopped.is_err(), "{text}");
    }
}
