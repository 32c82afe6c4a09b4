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
        "(..)[//following::b/size or //a/preceding::v]",
        "//b[. = '3']/ancestor::list",
        "//a | //b",
        "//v | //b[. = 3]",
        "//node/size | //v",
        "//b/ancestor::*[2]",
        "//*/ancestor-or-self::*[last()]",
        "//b/following::*[1]",
        "//*/following::node()[position() < 3][last()]",
        "//size/preceding::node[last()]",
        "//v/preceding::*[last() - 1][size]",
        "//*/descendant::*[2]",
        "//*/descendant-or-self::node[position() = count(*)]",
        "//*/descendant::*[position() mod 2 = 1 and last() > 3]/..",
        "//*[(.//size | .//b)[2]]",
        "//*[(ancestor::*/b)[last()] = 3]",
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

/// The members by slots that are asked about one by one: what documents have in common is not looked
/// at then.
fn one_by_one(image: &PartitionImage, text: &str) -> Vec<u8> {
    let (one, count) = (expression(text), image.len());
    let mut all = vec![0; count.div_ceil(8)];
    for slot in 0..count {
        let mut only = vec![0; count.div_ceil(8)];
        only[slot / 8] = 1 << (slot % 8);
        let members = evaluate(image, &one, Some(&only), &Budget::new(u64::MAX)).expect("no bound");
        all[slot / 8] |= members[slot / 8];
    }
    all
}

#[test]
fn what_documents_have_in_common_answers_as_each_does() {
    let machine = |n: usize| {
        format!(
            "<list><node id='host-{n}'><serial>S{}</serial><size>{}</size><v>{}</v>\n\
             <node id='disk'><size>5</size><serial>T{n}x</serial></node></node><!--c--></list>",
            n * 7,
            n % 5,
            if n % 40 == 3 { "rare" } else { "usual" },
        )
    };
    let machines: Vec<String> = (0..100).map(machine).collect();
    let image = image(&machines.iter().map(String::as_str).collect::<Vec<_>>());
    for text in [
        "//node/node",
        "count(//*) = 8",
        "//node[@id = 'host-17']/size",
        "//node[@id = 'disk'][size > 4]",
        "//serial = 'S77'",
        "//serial[starts-with(., 'S7')]",
        "//node[contains(., '7x')]",
        "contains(/, '7x\n')",
        "//node[contains(., 'usual\n')]",
        "//node[size = 3]/following::*",
        "//node[size = //node/node/size]",
        "//v = 'rare'",
        "//*[. = 'S70']",
        "//@*[contains(., '9')]",
        "//text()[. = 'S14']",
        "sum(//size) > 7",
        "string-length(//serial) = 2",
        "//node[@id < 5]",
        "count(//node[string-length(.) > 20]) = 1",
        "//node[//serial = 'S7'][//v = 'rare' or count(//node) = 2]/serial",
        "string(//node/serial) = 'S21' or //node[not(//serial = 'S28')]/v = 'rare'",
        // What functions make of values that set machines apart.
        "//node[translate(., 'S\n 5', 'T') = '0T7']",
        "//serial[substring(., 2) = 70]",
        "//node[normalize-space(serial) = 'S77']/v",
        "//node[string-length(serial) = 2 and contains(substring-after(., 'S'), 'usual')]",
        "number(substring(//serial, 2)) = 14",
        "//node/serial > 100 or //size > 3",
        "sum(//size) > sum(//serial)",
        "contains(translate(//node, 'S', 's'), 's77')",
        "concat(//serial, '-', //v) = 'S21-usual'",
        "starts-with(concat(//v, //serial), 'rareS')",
        "substring-before(concat(//serial, ' '), ' ') = 'S7'",
        "//* = //@*",
        "//node/@id = //v or //serial = //node/serial/text()",
        "//node[@id != ../@id]/serial != //v",
        "//node[@id != node/@id]/node[size > 4]/following::v = 'rare'",
        "//node/@id = //node/node/@id or //node[serial = ../@id]",
        "(//node/serial)[2] != //node[@id != //v]/size",
        "count(//node[@id != //v][size > 2]/serial) = 1",
        "//size != 3 and //v != string(//serial)",
        "string(//serial) = string(//node/node/serial) or string(//v) != string(//size)",
        "//size >= string-length(normalize-space(//node))",
        "(//node | //v) != string(//serial) and //v = 'rare'",
        "//node[count(//*) > size][serial = 'S77']",
        "//node[size = //size and @id != 'host-3']/v = 'rare' or //@id = //node/node/@id",
        "//ancestor-or-self::node/serial = 'S14' or //ancestor::*[v = 'rare']/size = 3",
        "//self::v = 'rare' and //size/..//descendant-or-self::size",
        "substring(//v, 2, 0.4) = '' and string(//*) = string(/) and //v = 'rare'",
        "//size/../@id = 'host-7' and count(//size/..) = 2",
        // Positions along axes.
        "//serial/preceding::node[last()]/@id = 'host-3'",
        "//v/following::*[2] = 'T8x'",
        "//serial/ancestor::*[2][self::node]/v = 'rare'",
        "//node/descendant::*[position() < 3][2] = 3",
        "//size/following::*[position() = count(preceding::*) - 1] = 'rare'",
        "//node[(.//serial)[2] = 'T9x']",
        "//node[(size | node/size)[position() = last()] = 5]/v = 'rare'",
        // What the outline decides, and what it must leave.
        "//@id/node or //serial/node",
        "not(//@id[node])",
        "//@id[.. and position() = last()] = 'host-7'",
        "//node[@id[2] or serial/size]",
        "//node/@id != 'nowhere'",
        "//node[size[parent::list] or v[parent::node]] = 'rare'",
        "//*[name() = 'v' and not(self::node)] = 'rare'",
        "//*[namespace-uri() = ''][local-name(..) = 'list']/@id = 'host-3'",
        "count(//v/size) >= 0 and count(//size[. = 3]) > 0",
        "//size[concat('', count(//v/x)) = '0'] = 2",
        "lang('en') or //text()[contains(., '')]/../following-sibling::v = 'rare'",
        "//comment()[preceding::node and not(following::node)]",
        "(//serial/size | //node/v)[. = 'rare']",
        "(//node | //size/v)[@id][1]/v = 'rare'",
        "number(//v/size) != 1 and string-length(//node/x) = 0 and sum(//x) = 0",
    ] {
        // The second question makes the skeleton.
        let asked = || evaluate(&image, &expression(text), None, &Budget::new(u64::MAX));
        let expected = Ok(one_by_one(&image, text));
        assert_eq!((asked(), asked()), (expected.clone(), expected), "{text}");
    }
    assert!(image.skeleton().is_some_and(|made| made.store().elements().len() < 100));
}

#[test]
fn a_skeleton_is_made_anew_after_a_change() {
    let machines: Vec<String> =
        (0..100).map(|n| format!("<list id='{n}'><a>{n}</a><b/></list>")).collect();
    let mut image = image(&machines.iter().map(String::as_str).collect::<Vec<_>>());
    let asked = |image: &PartitionImage, text: &str| {
        let ask = || evaluate(image, &expression(text), None, &Budget::new(u64::MAX));
        ask().and_then(|_| ask()).expect("no bound")
    };
    assert_eq!(asked(&image, "//c"), vec![0; 13]);
    image.put(5, &[("lshw", b"<list id='5'><c/></list>")]).expect("it is well-formed");
    assert_eq!(asked(&image, "//c")[0], 1 << 5);
    assert!(image.remove(5));
    assert_eq!(asked(&image, "//c"), vec![0; 13]);
}
