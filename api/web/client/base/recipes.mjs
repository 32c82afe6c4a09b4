// Recipes: questions that are asked of every fleet, with the expressions that ask them. They are those
// of docs/cookbook.md, with values to choose.
import { literal } from "./xpath.mjs";

const GIB = 1024 ** 3;
const CORES = "configuration/setting[@id='cores']/@value";
const ENABLED = "//node[@class='processor' and not(@disabled='true')]";
/** Displays of management controllers and of virtual machines. */
const NO_GPU = ["ASPEED", "Matrox", "Cirrus", "Red Hat", "VMware"];
const HYPERVISORS = ["QEMU", "VMware", "innotek", "OpenStack"];

/**
 * @typedef {object} Field What somebody chooses.
 * @property {string} key
 * @property {string} label
 * @property {"range" | "word"} kind `word` is chosen from what the fleet has at `under`.
 * @property {number[]} [steps] Of a range.
 * @property {string} [unit]
 * @property {string} [under] As the API's vocabulary takes it.
 * @property {string} start The value that it has at first.
 *
 * @typedef {object} Recipe
 * @property {string} key
 * @property {string} title
 * @property {string} text What to know of it.
 * @property {Field[]} fields
 * @property {(values: Record<string, string>) => string} write The expression.
 */

/** @param {string[]} words @param {string} of */
const containing = (words, of) => words.map((word) => `contains(${of}, ${literal(word)})`).join(" or ");

const VIRTUAL = `//node[@class='processor']/capabilities/capability[@id='hypervisor']
or //node[@class='system']/vendor[${containing(HYPERVISORS, ".")} or . = 'Xen']
or //node[@class='system']/product[. = 'Virtual Machine' or . = 'KVM']`;

/** @type {Recipe[]} */
export const RECIPES = [
  {
    key: "memory",
    title: "Memory",
    text: "Many servers print no total, only the size of each bank; virtual machines print the total alone. This asks both.",
    fields: [
      {
        key: "size",
        label: "At least",
        kind: "range",
        unit: "GiB",
        start: "64",
        steps: [1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096],
      },
    ],
    write: ({ size }) => {
      const bytes = String(Number(size) * GIB);
      return `//node[@id='memory']/size >= ${bytes}
or sum(//node[@class='memory' and starts-with(@id, 'bank')]/size) >= ${bytes}`;
    },
  },
  {
    key: "sockets",
    title: "Processors",
    text: "An empty or disabled socket is printed as well, and says that it is: it is not counted.",
    fields: [{ key: "count", label: "At least", kind: "range", unit: "sockets", start: "2", steps: [1, 2, 4, 8] }],
    write: ({ count }) => `count(${ENABLED}) >= ${count}`,
  },
  {
    key: "cores",
    title: "Cores",
    text: "The cores of all processors together.",
    fields: [
      {
        key: "count",
        label: "At least",
        kind: "range",
        unit: "cores",
        start: "32",
        steps: [2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256],
      },
    ],
    write: ({ count }) => `sum(${ENABLED}/${CORES}) >= ${count}`,
  },
  {
    key: "gpu",
    title: "GPU",
    text: "Nearly every server has a display: that of its management controller, or an emulated one. They are left out.",
    fields: [],
    write: () => `//node[@class='display'][not(vendor[${containing(NO_GPU, ".")}])]`,
  },
  {
    key: "gpu-vendor",
    title: "GPU of a vendor",
    text: "Vendors are written out, as NVIDIA Corporation.",
    fields: [{ key: "vendor", label: "Vendor", kind: "word", under: "vendor/text()", start: "NVIDIA" }],
    write: ({ vendor }) => `//node[@class='display']/vendor[contains(., ${literal(vendor ?? "")})]`,
  },
  {
    key: "nic-vendor",
    title: "Network card of a vendor",
    text: "Any of the machine's network interfaces.",
    fields: [{ key: "vendor", label: "Vendor", kind: "word", under: "vendor/text()", start: "Intel" }],
    write: ({ vendor }) => `//node[@class='network']/vendor[contains(., ${literal(vendor ?? "")})]`,
  },
  {
    key: "driver",
    title: "A driver",
    text: "What the kernel drives a device with.",
    fields: [{ key: "driver", label: "Driver", kind: "word", under: "setting/@value", start: "ixgbe" }],
    write: ({ driver }) => `//setting[@id='driver' and @value=${literal(driver ?? "")}]`,
  },
  {
    key: "nvme",
    title: "NVMe",
    text: "Versions of lshw differ in class and id; the driver and the device's name stay.",
    fields: [],
    write: () => "//setting[@id='driver' and @value='nvme']\nor //logicalname[starts-with(., '/dev/nvme')]",
  },
  {
    key: "virtual",
    title: "Virtual machine",
    text: "A processor under a hypervisor says so; the names are for versions of lshw that print no such capability.",
    fields: [],
    write: () => VIRTUAL,
  },
  {
    key: "physical",
    title: "Physical machine",
    text: "The opposite, of the machines that sent an inventory by lshw.",
    fields: [],
    write: () => `//node[@class='system']\nand not(${VIRTUAL})`,
  },
];
