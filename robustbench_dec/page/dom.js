"use strict";
// Small tools. Text reaches the page as text nodes only: nothing here or below writes markup from strings.

/** An element with properties, attributes (data-, aria-, and what has a dash), listeners (on...) and children. */
function h(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** The same for SVG, where everything is an attribute. */
function s(tag, properties = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.includes("-") || name === "role" || name === "scope") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

const find = (selector, root = document) => root.querySelector(selector);
const findAll = (selector, root = document) => [...root.querySelectorAll(selector)];
const unique = (values) => [...new Set(values)];
const mean = (values) => values.reduce((total, value) => total + value, 0) / values.length;
const percent = (fraction, digits = 1) => (100 * fraction).toFixed(digits);
/** A radius or a setting as Python's %g prints it, near enough: no trailing noise. */
const plain = (number) => String(Number(number.toPrecision(6)));

function thousands(number) {
  if (number >= 100 && number < 1e4) return Math.round(number).toLocaleString("en");
  const [size, unit] = number >= 1e9 ? [1e9, " G"] : number >= 1e6 ? [1e6, " M"] : number >= 1e4 ? [1e3, " k"] : [1, ""];
  return plain(Number((number / size).toPrecision(3))) + unit;
}

function coloured(colour, tag = "span") {
  const dot = h(tag, { className: "dot", "aria-hidden": "true" });
  dot.style.background = colour;
  return dot;
}
