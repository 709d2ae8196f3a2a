# Peer runner: conting and bayesloglin, posteriors over hierarchical log-linear models. One JSON object on the last line.
#
#   Rscript structure.R conting TABLE.csv ORDER ITERATIONS SEED [BURN_IN]
#   Rscript structure.R bayesloglin TABLE.csv SPACE ITERATIONS SEED
#
# The last column of the table holds the counts; the others are called by letters.
given <- commandArgs(trailingOnly = TRUE)
table <- read.csv(given[2], colClasses = "character")
last <- ncol(table)
names(table) <- c(LETTERS[seq_len(last - 1)], "freq")
table$freq <- as.numeric(table$freq)
for (k in seq_len(last - 1)) table[[k]] <- factor(table[[k]])
iterations <- as.integer(given[4])
set.seed(as.integer(given[5]))
quoted <- function(x) paste0('"', x, '"', collapse = ", ")
numbers <- function(x) paste(format(as.numeric(x), digits = 8), collapse = ", ")
seconds <- function(since) sum((proc.time() - since)[c("user.self", "sys.self")])

if (given[1] == "conting") {
  suppressPackageStartupMessages(library(conting))
  terms <- paste0("(", paste(LETTERS[seq_len(last - 1)], collapse = " + "), ")^", given[3])
  since <- proc.time()
  # the formula is evaluated where bcct is called, so it is made in place
  run <- eval(bquote(bcct(.(as.formula(paste("freq ~", terms))), data = table, n.sample = .(iterations), prior = "UIP")))
  used <- seconds(since)
  burn_in <- if (length(given) > 5) as.integer(given[6]) else iterations %/% 10L
  terms <- inter_probs(run, n.burnin = burn_in, cutoff = 0)
  models <- mod_probs(run, n.burnin = burn_in, best = 6)
  cat("\n{\"seconds\":", used, ", \"iterations\":", iterations,
    ", \"terms\": [", quoted(as.character(terms$term)), "], \"probability\": [", numbers(terms$prob),
    "], \"models\": [", quoted(gsub("[~: ]", "", models$table$model_formula)),
    "], \"model_probability\": [", numbers(models$table$prob.Freq), "]}\n")
} else {
  suppressPackageStartupMessages(library(bayesloglin))
  start <- paste("freq ~", paste(LETTERS[seq_len(last - 1)], collapse = " + "))
  since <- proc.time()
  invisible(capture.output(MC3(
    init = start, alpha = 1, iterations = iterations, replicates = 1, data = table, mode = given[3]
  )))
  cat("\n{\"seconds\":", seconds(since), ", \"iterations\":", iterations, "}\n")
}
