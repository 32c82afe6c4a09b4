"""Every kind of definition: what each production of the XPath 1.0 grammar costs in the kernel.

A mean over real definitions hides the dear ones, and who settles a change within a budget pays for
the dearest. So each production stands here by name, with the vocabulary of hardware, beside
combinations that are drawn at random.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from loadtest.benches import combinations
from loadtest.benches.combinations import AXES, COMPARISONS

GENERATED = 200
# Where each operand of a union, a filter or a comparison may stand.
UNION = "(//node[@class='disk'] | //node[@class='network']/capabilities)"
FILTER = "(//node[@class='memory'])[last()]"
SETS = ("//size", "//@id", "//node", "//node[@class='disk']/size", "//setting/@value", "//*")


@dataclass(frozen=True)
class Kind:
    name: str
    expression: str


def kinds(seed: int, generated: int = GENERATED) -> list[Kind]:
    """The listed kinds, then `generated` combinations that are different from each other."""
    drawn = enumerate(combinations.drawn(seed, generated), 1)
    return [*_listed(), *(Kind(f"generated {n}", text) for n, text in drawn)]


def _listed() -> Iterator[Kind]:
    for group, texts in (*_paths(), *_predicates(), *_operators(), *_functions()):
        for text in texts:
            yield Kind(group, text)


def _paths() -> Iterator[tuple[str, list[str]]]:
    for axis in AXES:
        element = "*" if axis == "attribute" else "node"
        named = "id" if axis == "attribute" else "node"
        yield (
            f"axis {axis}",
            [
                f"//node[@class='disk']/{axis}::{element}",
                f"//capabilities/{axis}::*",
                f"//node[{axis}::{named}]",
                f"//node[@class='network' and {axis}::{element}[. = 'x']]",
                f"//*[not({axis}::*)]",
                f"count(//node/{axis}::{element}) > 40",
                f"//node[count({axis}::*) > 3]",
                f"//node[@class='memory']/{axis}::{element}[2]/@id",
                f"//size/{axis}::*[last()]/product = 'x'",
                f"//{axis}::{named}[starts-with(., 'Q')]",
            ],
        )
    tests = (
        "node()",
        "text()",
        "comment()",
        "processing-instruction()",
        "processing-instruction('x')",
        "*",
        "lldp:*",
        "lldp:chassis",
        "absent",
    )
    for test in tests:
        yield (
            f"node test {test}",
            [
                f"//{test}",
                f"//node/{test}",
                f"count(//{test}) > 100",
                f"//{test} = 'x'",
                f"//node[{test} = 'x']",
            ],
        )
    yield (
        "abbreviated paths",
        [
            "/",
            ".",
            "/*",
            "//.",
            "//..",
            "//node/../../..",
            "node/node",
            ".//node//size",
            "//*",
            "//@*",
            "//node//@id",
            "//node//node//node",
            "//*//*//*",
            "//*/*/@units",
            "//node/*/..//@id",
        ],
    )


def _predicates() -> Iterator[tuple[str, list[str]]]:
    positions = (
        "1",
        "2",
        "last()",
        "last() - 1",
        "position() = 2",
        "position() < 3",
        "position() mod 2 = 0",
        "position() = last()",
        "last() > 3",
        "position() = count(preceding-sibling::*) + 1",
    )
    for position in positions:
        yield (
            f"predicate [{position}]",
            [
                f"//node[{position}]/size",
                f"//node[@class='disk'][{position}]",
                f"//*[{position}]/@id",
                f"//node/ancestor::node[{position}]/@class = 'x'",
                f"(//node)[{position}]/size > 1",
                f"count(//node/*[{position}]) > 7",
                f"//node[@class='disk' and {position}]",
            ],
        )
    yield (
        "nested predicates",
        [
            "//node[node[node[size > 1]]]",
            "//node[.//node[@class='disk'][size > 1000]]",
            "//node[capabilities[capability[@id='pci' or @id='x'][2]]]",
            "//node[ancestor::node[capabilities/capability[@id='smp']]]/size",
            "//*[*[*[*[@id]]]]",
            "//node[../node[../node[@class='network']]]",
            "//node[@class = /node/node/@class][size = //size]",
            "//node[count(node[count(node) > 1]) > 1]",
            "//node[following-sibling::node[preceding-sibling::node/@class='memory']]",
            "//node[not(.//node[not(ancestor::node[@class='bus'])])]",
            "count(//node[@class='disk'][ancestor::node[@class='storage']])"
            " + count(//size[../@id='x'])",
            "//node[ancestor::node[@class='bus']]/size | //node[@class='disk']/size",
        ],
    )
    yield (
        "filter expressions",
        [
            "(//node)[1]/@id = 'x'",
            "(//node)[last()]/size > 1",
            "(//node[@class='disk'])[3]",
            "(//node | //setting)[@id='cores']/@value > 40",
            "(//node/size)[. > 1000][2] > 1",
            "count((//node)[@class][position() > 3]) > 1",
            "(/node/node)[2]//size",
            "(//size | //capacity)[position() mod 2 = 1] > 1",
            "string((//node[@class='network'])[2]/product) = 'x'",
            "((//node)[size])[2]/vendor = 'x'",
            "(//*)[200]",
            "(//@*)[last()] = 'x'",
            "(//text())[5] = 'x'",
        ],
    )


def _operators() -> Iterator[tuple[str, list[str]]]:
    for symbol in COMPARISONS:
        yield (
            f"comparison {symbol}",
            [
                f"//size {symbol} 1000",
                f"1000 {symbol} //node",
                f"//node {symbol} 'x'",
                f"//*/@* {symbol} 'x'",
                f"//node {symbol} true()",
                f"//size {symbol} //capacity",
                f"//node {symbol} //description",
                f"//node/@id {symbol} //setting/@id",
                f"//node[size {symbol} capacity]",
                f"//node[@id {symbol} ../@id]",
                f"//node[product {symbol} //vendor]",
                f"//node[size {symbol} count(node)]",
                f"//node[vendor {symbol} string(../vendor)]",
                f"//* {symbol} //@*",
                f"count(//node) {symbol} count(//size)",
                f"string(//product) {symbol} string(//node)",
                f"'x' {symbol} concat(//vendor, //product)",
            ],
        )
    for symbol in ("+", "-", "*", "div", "mod"):
        yield (
            f"arithmetic {symbol}",
            [
                f"sum(//size) {symbol} count(//node) > 7",
                f"//node[size {symbol} capacity > 1]",
                f"//size {symbol} //capacity > 1",
                f"count(//node[size {symbol} 2 = 1]) {symbol} 2 = 1",
            ],
        )
    yield (
        "minus, and, or",
        [
            "-//size < -1",
            "--count(//node) > 3",
            "//node[@class='x'] or //node[ancestor::node/@class='y']",
            "//node[size] and //node[preceding::node/@class='network']",
            "//node[@class='disk' or size > 3 and following::node]",
        ],
    )
    yield (
        "unions",
        [
            UNION,
            f"not({UNION})",
            f"count({UNION}) > 9",
            f"sum({UNION}) > 9",
            f"string({UNION}) = 'x'",
            f"name({UNION}) = 'x'",
            f"{UNION} = 'x'",
            f"{UNION} > 9",
            f"{UNION} = //size",
            f"//size != {UNION}",
            f"{UNION} = true()",
            f"{UNION}[2]",
            f"{UNION}[@id]/size > 9",
            f"{UNION}/../@id = 'x'",
            f"{UNION}//size",
            f"contains({UNION}, 'x')",
            f"normalize-space({UNION}) = 'x'",
            "//node[size | capacity]",
            "//node[(size | capacity) > 9]",
            "//node[count(size | capacity | node) = 3]",
            "//node[(ancestor::node | node)/@class='disk']",
            "//node | //node/node | //@id",
            "count(//node | //node[@class] | //*[@id]) > 40",
            "sum(//size | //capacity | //node/size) > 9",
            "sum(//node[@class='disk']/size[@units='bytes'] | //node[ancestor::node]/size) > 9",
            "(//node | //text() | //@id)[. = 'x']",
        ],
    )


def _functions() -> Iterator[tuple[str, list[str]]]:
    for function in ("count", "sum"):
        totals = [f"{function}({nodes}) > 100" for nodes in SETS]
        totals += [
            f"{function}(//node[@class='memory']/node/size) div 1024 > 3",
            f"{function}(//node[@class='disk'][size > 1]/size) = 3",
            f"{function}(//node[ancestor::node[@class='bus']]/size) > 3",
            f"{function}(//node[preceding-sibling::node]/size) > 3",
            f"{function}(//node//size) > 3",
            f"{function}(//node//node/size) > 3",
            f"//node[{function}(node/size) > 3]",
            f"//node[{function}(.//size) > 3]",
            f"//node[{function}(../node/size) > 3]",
            f"//node[{function}(//size) > 3][size = 3]",
            f"{function}(//node[@id='x']/size) + {function}(//node[@class]/size[@units])"
            f" + {function}(//node[starts-with(@id, 'd')]/capacity) > 3",
        ]
        yield f"function {function}", totals
    for function in ("name", "local-name", "namespace-uri"):
        yield (
            f"function {function}",
            [
                *(f"{function}({nodes}) = 'x'" for nodes in SETS),
                f"//*[{function}() = 'size']",
                f"//*[{function}(..) = 'node']/@id",
                f"//*[starts-with({function}(), 's')]",
                f"//@*[{function}() = 'units'] = 'x'",
                f"//*[{function}(following::*) = 'x']",
                f"count(//*[{function}(*[2]) = 'size']) > 3",
            ],
        )
    applied = {
        "string": "{f}({x}) = 'x'",
        "string-length": "{f}({x}) > 11",
        "normalize-space": "{f}({x}) = 'x'",
        "number": "{f}({x}) > 11",
        "boolean": "{f}({x})",
        "not": "{f}({x})",
        "floor": "{f}({x}) > 11",
        "ceiling": "{f}({x}) > 11",
        "round": "{f}({x}) > 11",
        "concat": "{f}({x}, '-', //vendor) = 'x'",
        "starts-with": "{f}({x}, 'x')",
        "contains": "{f}({x}, 'x')",
        "substring-before": "{f}({x}, ' ') = 'x'",
        "substring-after": "{f}({x}, ' ') = 'x'",
        "substring": "{f}({x}, 2, 3) = 'x'",
        "translate": "{f}({x}, 'abc', 'xy') = 'x'",
        "lang": "{f}(string({x}))",
    }
    for function, form in applied.items():
        inside = ("product", ".", "../product", "@id", "//vendor", "text()")
        yield (
            f"function {function}",
            [
                *(form.format(f=function, x=nodes) for nodes in (*SETS, "/", UNION, FILTER)),
                *(f"//node[{form.format(f=function, x=nodes)}]/size" for nodes in inside),
                f"//*[{form.format(f=function, x='.')}]",
                f"{form.format(f=function, x='//node/preceding::size')}",
            ],
        )
    yield (
        "functions without nodes",
        [
            "true()",
            "not(false())",
            "concat('a', 'b') = 'ab'",
            "//node[position() = last()]",
            "//*[last() = 3]",
            "//node[string-length() > 300]",
            "//*[normalize-space() = 'x']",
            "//*[number() = 3]",
            "//node[lang('en')]",
            "//*[lang('en')]",
        ],
    )
