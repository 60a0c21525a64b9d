// What the search puts first: Sphinx's own points, but a decision comes behind a page of the same words.
// `var`, for Sphinx declares its own so where none is.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([page, , , , points]) => (page.startsWith("docs/decisions/") ? points - 12 : points),
};
