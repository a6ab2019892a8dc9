// Scores of search results. A title with the whole query comes before pages that only have its words.
var Scorer = {
  score: ([, , , , score, , kind]) => score + (kind === "title" ? 100 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: {0: 15, 1: 5, 2: -5},
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
