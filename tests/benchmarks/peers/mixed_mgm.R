# Peer runner: mgm on rows of several kinds. One JSON object on the last line.
#
#   Rscript mixed_mgm.R fit TRAIN.csv TEST.csv TYPES ORDER LAMBDA_SEL GAMMA
#   Rscript mixed_mgm.R data NAME ROWS.csv
#
# Types are letters as mgm takes them ("gpc..."). "fit" gives graphs by threshold and rule, and of every column given the
# others in TEST the mean log density and R2, or the share of categories that are predicted right. Predictions are those
# of mgm's node models with the means and standard deviations of TRAIN, for predict() takes those of the rows that it is
# given. "data" writes rows that mgm ships, and prints their types.
suppressPackageStartupMessages(library(mgm))
given <- commandArgs(trailingOnly = TRUE)
numbers <- function(x) paste0("[", paste(formatC(as.numeric(x), digits = 10), collapse = ", "), "]")
rows_of <- function(m) paste0("[", paste(apply(m, 1, numbers), collapse = ", "), "]")
seconds <- function(since) sum((proc.time() - since)[c("user.self", "sys.self")])

predictions <- function(model, train, test) {
  type <- model$call$type
  p <- length(type)
  spread <- rep(1, p)
  both <- as.data.frame(rbind(train, test))
  inside <- seq_len(nrow(train))
  colnames(both) <- paste0("V", 1:p, ".")
  for (s in which(type == "g")) {
    spread[s] <- sd(train[, s])
    both[, s] <- (both[, s] - mean(train[, s])) / spread[s]
  }
  log_density <- matrix(NA, nrow(test), p)
  skill <- rep(NA, p)
  r2 <- function(value, fitted) 1 - mean((value - fitted)^2) / mean((value - mean(value))^2)
  for (s in 1:p) {
    x <- mgm:::ModelMatrix_standard(both, type, model$call$k - 1, s, NULL)
    # As mgm() does after the products are made: those of numbers alone are scaled again.
    members <- strsplit(colnames(x), ":")
    real <- sapply(members, function(v) all(type[as.numeric(sub("V([0-9]+)[.].*", "\\1", v))] == "g"))
    for (j in which(real)) x[, j] <- (x[, j] - mean(x[inside, j])) / sd(x[inside, j])
    coefficients <- model$nodemodels[[s]]$model
    eta <- function(b) as.vector(b[1] + x %*% as.numeric(b)[-1])
    if (type[s] == "g") {
      fitted <- eta(coefficients)
      residual <- sd(both[inside, s] - fitted[inside])
      log_density[, s] <- (dnorm(both[, s], fitted, residual, log = TRUE) - log(spread[s]))[-inside]
      skill[s] <- r2(both[-inside, s], fitted[-inside])
    } else if (type[s] == "p") {
      fitted <- exp(eta(coefficients))
      log_density[, s] <- dpois(both[, s], fitted, log = TRUE)[-inside]
      skill[s] <- r2(both[-inside, s], fitted[-inside])
    } else {
      etas <- sapply(coefficients, eta)
      level <- match(both[, s], sort(unique(train[, s])))
      top <- apply(etas, 1, max)
      log_density[, s] <- (etas[cbind(seq_along(level), level)] - top - log(rowSums(exp(etas - top))))[-inside]
      skill[s] <- mean((max.col(etas, "first") == level)[-inside])
    }
  }
  list(log_density = log_density, skill = skill)
}

if (given[1] == "data") {
  shipped <- get(data(list = given[2]))
  rows <- if (is.list(shipped) && !is.data.frame(shipped)) shipped$data else shipped
  type <- if (is.list(shipped)) shipped$type else NULL
  if (is.null(type)) type <- ifelse(apply(rows, 2, function(v) all(v == round(v)) && length(unique(v)) < 5), "c", "g")
  write.table(rows, given[3], sep = ",", row.names = FALSE, col.names = FALSE)
  cat("{\"type\": \"", paste(type, collapse = ""), "\"}\n", sep = "")
} else {
  read <- function(path) unname(as.matrix(read.csv(path, header = FALSE)))
  train <- read(given[2])
  test <- read(given[3])
  type <- strsplit(given[4], "")[[1]]
  level <- sapply(seq_along(type), function(s) if (type[s] == "c") length(unique(train[, s])) else 1)
  set.seed(1)
  since <- proc.time()
  model <- suppressWarnings(mgm(train, type, level, k = as.integer(given[5]), lambdaSel = given[6],
    lambdaGam = as.numeric(given[7]), pbar = FALSE, signInfo = FALSE))
  used <- seconds(since)
  parts <- character()
  for (threshold in c("LW", "HW", "none")) for (rule in c("AND", "OR")) {
    model$call$threshold <- threshold
    model$call$ruleReg <- rule
    graph <- if (threshold == "LW" && rule == "AND") model else mgm:::Reg2Graph(model)
    sets <- sapply(seq_along(graph$interactions$indicator), function(order) {
      weights <- unlist(graph$interactions$weightsAgg[[order]])
      if (length(weights) == 0) return("[]")
      rows_of(cbind(matrix(graph$interactions$indicator[[order]], ncol = order + 1), weights))
    })
    parts <- c(parts, paste0("\"", threshold, " ", rule, "\": [", paste(sets, collapse = ", "), "]"))
  }
  found <- predictions(model, train, test)
  cat("{\"seconds\":", used, ", \"mgm\": \"", as.character(packageVersion("mgm")), "\", \"glmnet\": \"",
    as.character(packageVersion("glmnet")), "\", \"by_column\": ", numbers(colMeans(found$log_density)),
    ", \"skill\": ", numbers(found$skill), ", \"by_row\": ", numbers(rowSums(found$log_density)), ", \"graphs\": {", paste(parts, collapse = ", "), "}}\n", sep = "")
}
